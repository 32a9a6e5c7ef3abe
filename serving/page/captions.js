// @ts-check
/** What was heard and what it was translated to, line by line. */

/**
 * @typedef {{text: string, start?: number, end?: number, after?: number}} Word
 * @typedef {{words: Word[], tentative: string, translations: Word[][], lagging: number | null}} Line
 * @typedef {import("./session.js").Step} Step
 */

// Chinese, Japanese, and their punctuation: written without spaces, so that each character counts as a word.
const NO_SPACES = "\\u3001-\\u30ff\\uff00-\\uffef\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{2fa1f}";
const WORD = new RegExp(`[${NO_SPACES}]|[^\\s${NO_SPACES}]+`, "gu");
const TIGHT = new RegExp(`[${NO_SPACES}]`, "u");

/**
 * Return the words of a text, as the server counts them.
 *
 * @param {string} text
 * @returns {string[]}
 */
export function wordsIn(text) {
  return text.match(WORD) ?? [];
}

/**
 * Return words as a text, with spaces between them where their script has any.
 *
 * @param {string[]} words
 */
export function joined(words) {
  return words.reduce((text, word) => {
    const last = [...text].at(-1) ?? "";
    return text + (!last || TIGHT.test(last) || TIGHT.test([...word][0]) ? "" : " ") + word;
  }, "");
}

/**
 * Return the words of a line, each with the words of a translation that were begun when it was the last one read.
 *
 * @param {Line} line
 * @param {number} which The number of the translation.
 * @returns {string[]} One text for each word, and one more for what came before the first.
 */
export function under(line, which) {
  const found = Array.from({ length: line.words.length + 1 }, () => /** @type {string[]} */ ([]));
  for (const word of line.translations[which] ?? []) {
    found[Math.min(word.after ?? line.words.length, line.words.length)].push(word.text);
  }
  return found.map(joined);
}

export class Captions {
  /**
   * @param {number[]} stages The stages that give text, the first of which gives the words that were heard.
   * @param {boolean} isTyped Whether the words come from the client, as text; then all stages translate.
   */
  constructor(stages, isTyped) {
    this.stages = stages;
    this.isTyped = isTyped;
    /** @type {Line[]} */
    this.lines = [];
    /** The line that each stage was in when the present session began, and is in now. */
    this.begun = stages.map(() => 0);
    this.current = stages.map(() => 0);
    this.typed = "";
  }

  /** Learn that a session goes on, in the lines that it was in. */
  resume() {
    this.begun = [...this.current];
  }

  /**
   * Learn that another session has begun; return the numbers of the lines that changed.
   *
   * @param {number} place The place in all input at which it begins: that tells the line of text that is typed.
   * @returns {Set<number>}
   */
  restart(place) {
    const typed = [...this.typed].slice(0, place).filter((letter) => letter === "\n").length;
    this.begun = this.stages.map(() => (this.isTyped ? typed : this.lines.length));
    this.current = [...this.begun];
    const changed = [...this.lines.keys()].filter((number) => this.lines[number].tentative);
    for (const number of changed) this.lines[number].tentative = "";
    return new Set(changed);
  }

  /**
   * Add what a step has told; return the numbers of the lines that changed.
   *
   * @param {Step} step
   * @param {number} shift Seconds that the present session began after the first one.
   * @returns {Set<number>}
   */
  add(step, shift = 0) {
    const own = this.stages.indexOf(step.stage);
    /** @type {Set<number>} */
    const changed = new Set();
    if (own < 0) return changed;
    const isSource = own === 0 && !this.isTyped;
    const row = this.isTyped ? own : own - 1;
    for (const { line, ...word } of step.words ?? []) {
      const number = this.begun[own] + line;
      if (isSource) {
        this.line(number).words.push({ ...word, start: (word.start ?? 0) + shift, end: (word.end ?? 0) + shift });
      } else {
        (this.line(number).translations[row] ??= []).push(word);
      }
      changed.add(number);
    }
    if (step.lagging !== undefined) {
      const number = this.begun[own] + step.lagging.line;
      this.line(number).lagging = step.lagging.tokens;
      changed.add(number);
    }
    this.current[own] += (step.text ?? "").split("\n").length - 1;
    if (isSource && step.tentative !== undefined) {
      for (const [number, line] of this.lines.entries()) {
        if (!line.tentative) continue;
        line.tentative = "";
        changed.add(number);
      }
      if (step.tentative) {
        this.line(this.current[own]).tentative = step.tentative;
        changed.add(this.current[own]);
      }
    }
    return changed;
  }

  /**
   * Add text that the client types; return the numbers of the lines that changed.
   *
   * @param {string} text
   * @returns {Set<number>}
   */
  type(text) {
    /** @type {Set<number>} */
    const changed = new Set();
    const first = this.typed.split("\n").length - 1;
    this.typed += text;
    const lines = this.typed.split("\n");
    for (let number = first; number < lines.length; number += 1) {
      if (!lines[number].trim()) continue;
      this.line(number).words = wordsIn(lines[number]).map((word) => ({ text: word }));
      changed.add(number);
    }
    return changed;
  }

  /**
   * @param {number} number
   * @returns {Line}
   */
  line(number) {
    while (this.lines.length <= number) {
      this.lines.push({ words: [], tentative: "", translations: [], lagging: null });
    }
    return this.lines[number];
  }

  /** @returns {string[]} The lines that were heard, without what may still change. */
  get transcript() {
    return this.lines.map((line) => joined(line.words.map((word) => word.text)));
  }

  /** @returns {string} The lines that were heard, with their times, as a file of subtitles in WebVTT. */
  get subtitles() {
    const cues = this.lines.flatMap((line) => {
      const [first, last] = [line.words[0], line.words.at(-1)];
      if (first === undefined || last === undefined) return [];
      const rows = [line.words, ...line.translations].map((row) => joined(row.map((word) => word.text)));
      const text = rows.filter(Boolean).join("\n").replaceAll("&", "&amp;").replaceAll("<", "&lt;");
      return [`${timestamp(first.start ?? 0)} --> ${timestamp(last.end ?? 0)}\n${text}\n`];
    });
    return ["WEBVTT\n", ...cues].join("\n");
  }
}

/**
 * Return seconds as WebVTT writes them.
 *
 * @param {number} seconds
 */
export function timestamp(seconds) {
  const milliseconds = Math.round(1000 * seconds);
  const parts = [3_600_000, 60_000, 1000].map((size, n) => Math.floor(milliseconds / size) % (n ? 60 : 1e6));
  return `${parts.map((part) => String(part).padStart(2, "0")).join(":")}.${String(milliseconds % 1000).padStart(3, "0")}`;
}
