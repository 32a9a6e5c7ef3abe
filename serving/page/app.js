// @ts-check
/** The page of a server: its views, and what the server serves. */

import { Refusal, askJson, key, setKey } from "./api.js";
import { find } from "./dom.js";
import { Interpreter } from "./interpreter.js";
import { Gallery } from "./models.js";
import { Server } from "./server.js";
import { TryOut } from "./try.js";

const EVERY = 10_000; // milliseconds after which models may have changed
const VIEWS = ["interpreter", "try", "server", "models"];

/** @typedef {import("./session.js").Medium} Medium */
/** @typedef {{metric: string, points: {wait_k: number | null, trained: boolean, score: number, lagging: number}[]}} Curve */
/**
 * @typedef {{takes: Medium, gives: Medium, settings: Record<string, any>}} StreamInfo
 * @typedef {StreamInfo & {name: string, models: string[]}} Stream
 * @typedef {{name: string, face: string, kind: string | null, precision: string, layers: number | null,
 *   width: number | null, weights: number | null, loaded_at: number, labels: string[] | null, columns: Record<string, string[]> | null,
 *   operations: Record<string, {settings: string[]}>, stream: StreamInfo | null, examples: number, latency: Curve | null}} Model
 */

class App {
  constructor() {
    this.interpreter = new Interpreter();
    this.tryOut = new TryOut();
    this.server = new Server();
    this.gallery = new Gallery();
    this.server.spoken = () => this.interpreter.spoken;
    this.problem = find("problem", HTMLElement);
    this.notice = find("notice", HTMLElement);
    addEventListener("hashchange", () => this.show());
    find("key-form", HTMLFormElement).onsubmit = (event) => {
      event.preventDefault();
      setKey(find("key", HTMLInputElement).value.trim());
      void this.load();
    };
    find("key", HTMLInputElement).value = key();
    setInterval(() => void this.load(), EVERY);
    this.show(true);
    void this.load();
  }

  /** @param {boolean} isFirst */
  show(isFirst = false) {
    if (location.hash && !location.hash.startsWith("#/")) return; // a place within a view
    const view = VIEWS.includes(location.hash.slice(2)) ? location.hash.slice(2) : VIEWS[0];
    for (const name of VIEWS) {
      const section = find(name, HTMLElement);
      section.hidden = name !== view;
      const link = document.querySelector(`nav a[href="#/${name}"]`);
      if (name === view) link?.setAttribute("aria-current", "page");
      else link?.removeAttribute("aria-current");
    }
    this.server.isShown = view === "server";
    if (!isFirst) find(view, HTMLElement).querySelector("h2")?.focus();
  }

  /** Ask what is served. */
  async load() {
    if (document.hidden) return;
    let found;
    try {
      found = await askJson("/models");
    } catch (error) {
      const needsKey = error instanceof Refusal && error.status === 401;
      if (needsKey) find("key-box", HTMLDetailsElement).open = true;
      this.tell(needsKey && !key() ? "This server asks for a key. Enter it above." : /** @type {Error} */ (error).message);
      return;
    }
    this.tell("");
    this.notice.textContent = found.notice;
    this.notice.hidden = !found.notice;
    /** @type {Model[]} */
    const models = found.models;
    /** @type {Stream[]} */
    const streams = [
      ...found.chains,
      ...models.flatMap(({ name, stream }) => (stream === null ? [] : [{ ...stream, name, models: [name] }])),
    ];
    this.interpreter.setStreams(streams, models);
    this.tryOut.setModels(models);
    this.server.setStreams(streams);
    this.gallery.setModels(models, streams);
    if (!streams.length && !location.hash) location.replace("#/try");
  }

  /** @param {string} message */
  tell(message) {
    if (this.problem.textContent !== message) this.problem.textContent = message;
    this.problem.hidden = !message;
  }
}

new App();
