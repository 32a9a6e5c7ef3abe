// @ts-check
/** The gallery: what models the server has, and what each of them is. */

import { ask } from "./api.js";
import { find, make, plural } from "./dom.js";
import { render } from "./markdown.js";

/** @typedef {import("./app.js").Model} Model */
/** @typedef {import("./app.js").Stream} Stream */

export class Gallery {
  constructor() {
    this.box = find("gallery", HTMLElement);
    /** @type {string} */
    this.shown = "";
  }

  /**
   * @param {Model[]} models
   * @param {Stream[]} streams
   */
  setModels(models, streams) {
    const found = JSON.stringify([models, streams]);
    if (found === this.shown) return;
    this.shown = found;
    const chains = streams.filter((stream) => stream.models.length > 1);
    this.box.replaceChildren(...models.map((model) => this.card(model)), ...chains.map((chain) => this.chain(chain)));
  }

  /** @param {Model} model */
  card(model) {
    const loaded = new Date(1000 * model.loaded_at);
    const facts = {
      Kind: model.kind ?? ("search" in model.operations ? "index" : "encoder"),
      Size:
        model.weights === null
          ? null
          : `${plural(model.layers ?? 0, "layer")} of ${model.width}, ${many(model.weights)} weights`,
      Precision: model.precision,
      Operations: Object.keys(model.operations).join(", ") || "none",
      Stream: model.stream === null ? "none" : `${medium(model.stream.takes)} to ${medium(model.stream.gives)}`,
      Labels: model.labels?.length ? model.labels.join(", ") : null,
      Loaded: `${loaded.toLocaleDateString()} ${loaded.toLocaleTimeString()}`,
    };
    const card = make("div", { class: "run-card" }, "…");
    const details = make("details", {}, make("summary", {}, "Run card"), card);
    details.addEventListener("toggle", () => void this.load(model.name, card), { once: true });
    return make(
      "article",
      { class: "card" },
      make("h3", {}, model.name),
      make(
        "dl",
        {},
        ...Object.entries(facts).flatMap(([name, fact]) => (fact === null ? [] : [make("dt", {}, name), make("dd", {}, fact)])),
      ),
      details,
      make(
        "div",
        { class: "buttons small" },
        make("button", { type: "button", onclick: () => void this.report(model.name, card) }, "Open its report"),
      ),
    );
  }

  /** @param {Stream} chain */
  chain(chain) {
    return make(
      "article",
      { class: "card" },
      make("h3", {}, chain.name),
      make("p", {}, `A chain: ${chain.models.join(" → ")}, from ${medium(chain.takes)} to ${medium(chain.gives)}.`),
    );
  }

  /**
   * @param {string} name
   * @param {HTMLElement} card
   */
  async load(name, card) {
    try {
      const text = await (await ask(`/models/${encodeURIComponent(name)}/card`)).text();
      card.replaceChildren(render(text));
    } catch (error) {
      card.textContent = /** @type {Error} */ (error).message;
    }
  }

  /**
   * @param {string} name
   * @param {HTMLElement} card
   */
  async report(name, card) {
    let content;
    try {
      content = await (await ask(`/models/${encodeURIComponent(name)}/report`)).blob();
    } catch (error) {
      card.textContent = /** @type {Error} */ (error).message;
      /** @type {HTMLDetailsElement} */ (card.parentElement).open = true;
      return;
    }
    const frame = make("iframe", { sandbox: "", title: `Report of ${name}`, src: URL.createObjectURL(content) });
    const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "report" }));
    dialog.append(make("button", { type: "button", onclick: () => dialog.close() }, "Close"), frame);
    dialog.onclose = () => dialog.remove();
    document.body.append(dialog);
    dialog.showModal();
  }
}

/** @param {number} count */
function many(count) {
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} thousand` : `${(count / 1e6).toFixed(1)} million`;
}

/** @param {import("./session.js").Medium} own */
function medium(own) {
  return own.kind === "text" ? "text" : `sound at ${own.sample_rate / 1000} kHz`;
}
