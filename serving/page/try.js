// @ts-check
/** Single requests to models of text, with answers that one can read, and the request to copy. */

import { askJson, key } from "./api.js";
import { find, make } from "./dom.js";
import { examplesOf } from "./examples.js";
import { snippets } from "./snippets.js";

/** @typedef {import("./app.js").Model} Model */
/** @typedef {Record<string, string>} Fields What stands in the form, by the name of the field. */
/**
 * @typedef {object} Trial Something that a model can be asked, and how the answer is shown.
 * @property {string} name
 * @property {[string, string, string][]} fields Name, label and example of each text; a name that ends in "*" has lines.
 * @property {(fields: Fields) => {operation: string, inputs: unknown[], settings?: Record<string, unknown>}} request
 * @property {(values: any[], fields: Fields) => (Node | string)[]} show
 * @property {(fields: Fields) => string[]} [openai] Lines of Python for OpenAI's client.
 */

const PASSAGE =
  "The Amazon is the largest river by the water that it carries. It rises in Peru and flows through Brazil to the sea.";

/** @param {string} text */
function lines(text) {
  return text.split("\n").filter((line) => line.trim());
}

/**
 * Return bars with a name and a share between 0 and 1 each.
 *
 * @param {[string, number][]} shares
 */
function bars(shares) {
  return make(
    "table",
    { class: "bars" },
    ...shares.map(([name, share]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, name),
        make("td", {}, make("meter", { min: 0, max: 1, value: Math.max(0, share), "aria-label": name })),
        make("td", { class: "number" }, share.toFixed(3)),
      ),
    ),
  );
}

/** @param {any} value */
function plain(value) {
  return make("pre", {}, JSON.stringify(value, null, 2));
}

/**
 * Return the color of a kind of entity, the same each time.
 *
 * @param {string} name
 */
function hue(name) {
  return [...name].reduce((sum, letter) => (31 * sum + letter.charCodeAt(0)) % 360, 7);
}

/** @param {{tags: string[], words: string[]}} answer */
function tagged({ tags, words }) {
  const shown = words.map((word, n) => {
    const kind = tags[n].replace(/^[BIESLUM]-/, "");
    if (kind === "O" || kind === "") return make("span", { class: "tag-word" }, word);
    const style = `--hue: ${hue(kind)}`;
    return make("mark", { class: "tag-word tagged", style }, word, make("small", {}, ` ${tags[n]}`));
  });
  return [make("p", { class: "tagged-text" }, ...shown.flatMap((part) => [part, " "]))];
}

/**
 * @param {{answer: string, start: number, score: number}} answer
 * @param {string} passage
 */
function marked({ answer, start, score }, passage) {
  if (start < 0) return [make("p", {}, "The passage does not answer this.")];
  const letters = [...passage]; // the server counts characters of Unicode
  const end = start + [...answer].length;
  const parts = [letters.slice(0, start), letters.slice(start, end), letters.slice(end)].map((part) => part.join(""));
  return [
    make("p", {}, parts[0], make("mark", {}, parts[1]), parts[2]),
    make("p", { class: "hint" }, `Score against “no answer”: ${score}.`),
  ];
}

/**
 * Return what a model that answers rows can be asked.
 *
 * @param {Model} model
 * @returns {Trial[]}
 */
function predicting(model) {
  const examples = { context: PASSAGE, question: "Where does the Amazon rise?", text: "A moving film.", text_pair: "It was dull." };
  const columns = Object.entries(model.columns ?? {}).filter(([field]) => field !== "group");
  const single = (/** @type {string} */ field) => columns.find(([own]) => own === field)?.[1][0] ?? "";
  if (model.kind === "transcribe" || model.kind === "synthesize") return []; // these are for the Interpreter
  if (model.kind === "rank") {
    const [query, text] = [single("text"), single("text_pair")];
    return [
      {
        name: "Rank texts",
        fields: [
          ["query", "Query", "rivers in Peru"],
          ["texts*", "Texts, one a line", "The Amazon rises in Peru.\nA film about chess."],
        ],
        request: (fields) => ({
          operation: "predict",
          inputs: lines(fields["texts*"]).map((own) => ({ [query]: fields.query, [text]: own })),
        }),
        show: (values, fields) => {
          const texts = lines(fields["texts*"]);
          const ranked = values.map((value, n) => /** @type {[string, number]} */ ([texts[n], value.score]));
          return [bars(ranked.sort((a, b) => b[1] - a[1]))];
        },
      },
    ];
  }
  /** @type {[string, string, string][]} */
  const fields = columns.flatMap(([field, names]) =>
    names.map((name) => {
      const isList = field === "choices" && names.length === 1;
      const example = isList ? "yes\nno" : (/** @type {Record<string, string>} */ (examples)[field] ?? "A moving film.");
      return /** @type {[string, string, string]} */ ([isList ? `${name}*` : name, isList ? `${name}, one a line` : name, example]);
    }),
  );
  const settings = model.operations.predict.settings.includes("all_labels") ? { all_labels: true } : undefined;
  return [
    {
      name: { classify: "Classify", multilabel: "Choose labels", tag: "Tag words", extract: "Answer a question", regress: "Score", choose: "Choose", translate: "Translate" }[model.kind ?? ""] ?? "Predict",
      fields: fields.length ? fields : [["text", "text", "A moving film."]],
      request: (given) => ({
        operation: "predict",
        inputs: [
          Object.fromEntries(
            Object.entries(given).map(([name, text]) => (name.endsWith("*") ? [name.slice(0, -1), lines(text)] : [name, text])),
          ),
        ],
        settings,
      }),
      show: ([value], given) => shown(model, value, given[single("context")] ?? ""),
    },
  ];
}

/**
 * @param {Model} model
 * @param {any} value
 * @param {string} passage
 * @returns {(Node | string)[]}
 */
function shown(model, value, passage) {
  if (model.kind === "tag" && value.words) return tagged(value);
  if (model.kind === "extract") return marked(value, passage);
  if (model.kind === "translate") return [make("p", { class: "answer" }, String(Object.values(value)[0]))];
  const shares = value.all_labels ?? value.probabilities;
  const [[, first]] = Object.entries(value);
  const head = make("p", { class: "answer" }, Array.isArray(first) ? first.join(", ") || "no label" : String(first));
  if (shares && !Array.isArray(shares)) {
    return [head, bars(Object.entries(shares).map(([name, share]) => /** @type {[string, number]} */ ([name, Number(share)])))];
  }
  return [head, plain(value)];
}

/** @param {number[]} a @param {number[]} b */
function dot(a, b) {
  return a.reduce((sum, x, n) => sum + x * b[n], 0);
}

/**
 * Return what an encoder can be asked.
 *
 * @param {Model} model
 * @returns {Trial[]}
 */
function encoding(model) {
  /** @type {Trial[]} */
  const trials = [
    {
      name: "Search by similarity",
      fields: [
        ["query", "Query", "a river in South America"],
        ["texts*", "Texts, one a line", "The Amazon flows through Brazil.\nA film about chess.\nThe Nile is long."],
      ],
      request: (fields) => ({
        operation: "encode",
        inputs: [fields.query, ...lines(fields["texts*"])],
        settings: { normalize: true },
      }),
      show: ([query, ...vectors], fields) => {
        const texts = lines(fields["texts*"]);
        const ranked = vectors.map((vector, n) => /** @type {[string, number]} */ ([texts[n], dot(query, vector)]));
        return [
          bars(ranked.sort((a, b) => b[1] - a[1])),
          make("p", { class: "hint" }, `Cosines of vectors of ${query.length} numbers.`),
        ];
      },
      openai: (fields) => [
        `texts = ${JSON.stringify([fields.query, ...lines(fields["texts*"])])}`,
        `reply = client.embeddings.create(model=${JSON.stringify(model.name)}, input=texts)`,
        "print([len(each.embedding) for each in reply.data])",
      ],
    },
  ];
  if ("fill_mask" in model.operations) {
    trials.push({
      name: "Fill masks",
      fields: [["text", "Text with [MASK]", "The [MASK] is cold."]],
      request: (fields) => ({ operation: "fill_mask", inputs: [fields.text], settings: { top: 8 } }),
      show: ([masks]) =>
        masks.map((/** @type {{token: string, probability: number}[]} */ own) =>
          bars(own.map(({ token, probability }) => [token, probability])),
        ),
    });
  }
  return trials;
}

/**
 * Return the text of a passage, with the words of a query marked.
 *
 * @param {string} text
 * @param {string} query
 */
function withWords(text, query) {
  const words = new Set(query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);
  const parts = text.split(/([\p{L}\p{N}]+)/u);
  return parts.map((part) => (words.has(part.toLowerCase()) ? make("mark", {}, part) : part));
}

/**
 * Return what an index can be asked.
 *
 * @param {Model} model
 * @returns {Trial[]}
 */
function searching(model) {
  /** @type {Record<string, string>} */
  const names = { dense: "vectors", bm25: "words", hybrid: "both", rerank: "relevance" };
  return [
    {
      name: "Search",
      fields: [["query", "Query", "a river in winter"]],
      request: (fields) => ({ operation: "search", inputs: [fields.query], settings: { top: 8 } }),
      show: ([hits], fields) =>
        hits.length
          ? [
              make(
                "ol",
                { class: "hits" },
                ...hits.map((/** @type {any} */ hit) =>
                  make(
                    "li",
                    {},
                    hit.title ? make("strong", {}, hit.title) : "",
                    make("p", {}, ...withWords(hit.text, fields.query)),
                    make(
                      "p",
                      { class: "hint" },
                      `${hit.file}:${hit.line} · `,
                      Object.entries(hit.scores)
                        .map(([name, score]) => `${names[name] ?? name} ${Number(score).toPrecision(3)}`)
                        .join(" · "),
                      ...Object.entries(hit.cells ?? {}).map(([name, cell]) => ` · ${name}: ${cell}`),
                    ),
                  ),
                ),
              ),
            ]
          : [make("p", {}, "No passage has a word of this.")],
      openai: (fields) => [
        `found = client.vector_stores.search(${JSON.stringify(model.name)}, query=${JSON.stringify(fields.query)})`,
        "for each in found.data:",
        "    print(each.score, each.filename, each.content[0].text)",
      ],
    },
  ];
}

/**
 * Return all that a model can be asked on the page.
 *
 * @param {Model} model
 * @returns {Trial[]}
 */
function trialsOf(model) {
  if ("predict" in model.operations) return predicting(model);
  if ("search" in model.operations) return searching(model);
  return "encode" in model.operations ? encoding(model) : [];
}

export class TryOut {
  constructor() {
    this.choice = find("try-model", HTMLSelectElement);
    this.form = find("try-form", HTMLFormElement);
    this.fieldsBox = find("try-fields", HTMLElement);
    this.answer = find("try-answer", HTMLElement);
    this.code = find("try-code", HTMLElement);
    this.button = find("try-ask", HTMLButtonElement);
    this.exampleButton = find("try-example", HTMLButtonElement);
    this.shownExample = -1;
    /** @type {{model: Model, trial: Trial}[]} */
    this.trials = [];
    this.choice.onchange = () => this.showForm();
    this.exampleButton.onclick = () => void this.nextExample();
    this.form.oninput = () => this.showCode();
    this.form.onsubmit = (event) => {
      event.preventDefault();
      void this.ask();
    };
  }

  /** @param {Model[]} models */
  setModels(models) {
    const before = this.choice.value;
    this.trials = models.flatMap((model) => trialsOf(model).map((trial) => ({ model, trial })));
    const names = this.trials.map(({ model, trial }) => `${model.name}: ${trial.name}`);
    if (names.join("\n") === [...this.choice.options].map(({ text }) => text).join("\n")) return; // keep what was typed
    this.choice.replaceChildren(...names.map((name, n) => make("option", { value: n }, name)));
    if (before && Number(before) < names.length) this.choice.value = before;
    find("no-trials", HTMLElement).hidden = this.trials.length > 0;
    this.form.hidden = !this.trials.length;
    this.showForm();
  }

  get chosen() {
    return this.trials[Number(this.choice.value)];
  }

  showForm() {
    this.answer.replaceChildren();
    if (this.chosen === undefined) return;
    this.fieldsBox.replaceChildren(
      ...this.chosen.trial.fields.map(([name, label, example]) => {
        const area = make("textarea", { name, rows: name.endsWith("*") || example.length > 60 ? 4 : 2 });
        /** @type {HTMLTextAreaElement} */ (area).value = example;
        return make("label", {}, label, area);
      }),
    );
    this.showCode();
    this.exampleButton.hidden = !this.chosen.model.examples;
    this.shownExample = -1;
    if (this.chosen.model.examples) void this.nextExample();
  }

  /** Fill the form with the next of the model's own examples. */
  async nextExample() {
    const { chosen } = this;
    const examples = await examplesOf(chosen.model);
    if (chosen !== this.chosen || !examples.length) return;
    this.shownExample = (this.shownExample + 1) % examples.length;
    const { cells } = examples[this.shownExample];
    for (const area of this.fieldsBox.querySelectorAll("textarea")) {
      const cell = cells[area.name.replace("*", "")];
      if (cell !== undefined && cell !== null) area.value = Array.isArray(cell) ? cell.join("\n") : String(cell);
    }
    this.answer.replaceChildren();
    this.showCode();
  }

  /** @returns {Fields} */
  get fields() {
    return Object.fromEntries([...new FormData(this.form)].map(([name, text]) => [name, String(text)]));
  }

  get request() {
    const { model, trial } = this.chosen;
    const { operation, inputs, settings } = trial.request(this.fields);
    const body = settings === undefined ? { inputs } : { inputs, settings };
    return { path: `/models/${encodeURIComponent(model.name)}/${operation}`, body, openai: trial.openai?.(this.fields) };
  }

  async ask() {
    const { trial } = this.chosen;
    const { path, body } = this.request;
    const begin = performance.now();
    this.button.disabled = true;
    try {
      const { results, tokens } = await askJson(path, body);
      const failed = results.find((/** @type {any} */ own) => own.error !== undefined);
      if (failed) throw new Error(failed.error.message);
      const notes = results.flatMap((/** @type {any} */ own) => own.notes ?? []);
      const milliseconds = (performance.now() - begin).toFixed(0);
      this.answer.replaceChildren(
        ...trial.show(results.map((/** @type {any} */ own) => own.value), this.fields),
        ...notes.map((/** @type {string} */ note) => make("p", { class: "note" }, note)),
        make("p", { class: "hint" }, `${tokens} tokens, ${milliseconds} ms from the click to the answer.`),
      );
    } catch (error) {
      this.answer.replaceChildren(make("p", { class: "problem" }, /** @type {Error} */ (error).message));
    } finally {
      this.button.disabled = false;
    }
  }

  showCode() {
    const found = snippets(location.origin, this.request, key() !== "");
    this.code.replaceChildren(
      ...Object.entries(found).map(([name, text]) => {
        const copy = make("button", {
          type: "button",
          onclick: async () => {
            await navigator.clipboard.writeText(text);
            copy.textContent = "Copied";
            setTimeout(() => (copy.textContent = "Copy"), 1500);
          },
        }, "Copy");
        return make("details", { open: name === "curl" }, make("summary", {}, name), copy, make("pre", {}, text));
      }),
    );
  }
}
