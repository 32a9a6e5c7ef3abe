// @ts-check
/** The interpreter: one speaks or types, and reads and hears what comes of it. */

import { Captions, joined, under } from "./captions.js";
import { pointAt } from "./curve.js";
import { duration, find, make, plural, save } from "./dom.js";
import { examplesOf, soundOf, titleOf } from "./examples.js";
import { CaptureClock, Latency, PARTS } from "./latency.js";
import { draw } from "./plot.js";
import { Session } from "./session.js";
import { Player, fileAsMicrophone, microphone } from "./sound.js";
import { waveFile } from "./wave.js";

const WHOLE = 1000; // a wait_k that no line is as long as
const LAST = 10; // the position of the slider that stands for WHOLE
const STRIP = 250; // milliseconds between two updates of the latencies
/** @type {Record<string, string>} */
const METRICS = { bleu: "BLEU", chrf: "chrF" };
const AT_ONCE = 6; // words that screen readers are given together
const RATE = 16_000; // of a microphone for a chain whose models' rates are not known yet

/** @typedef {import("./session.js").Ready} Ready */
/** @typedef {import("./session.js").Step} Step */
/** @typedef {import("./app.js").Model} Model */
/** @typedef {import("./app.js").Stream} Stream */

/** What was said since somebody began to speak, and what came of it. */
class Talk {
  constructor() {
    this.captions = new Captions([], false);
    this.latency = new Latency();
    this.capture = new CaptureClock(RATE);
    /** @type {Int16Array[]} */
    this.sent = [];
    /** @type {Int16Array[]} */
    this.voice = [];
    this.rate = RATE;
    this.samples = 0;
    this.lastWordEnd = 0; // seconds
    this.isStopping = false;
    /** @type {HTMLElement[]} */
    this.rows = [];
    /** @type {number[][]} How many words screen readers have of each line, and of its translations. */
    this.logged = [];
  }
}

export class Interpreter {
  constructor() {
    this.choice = find("stream", HTMLSelectElement);
    this.speak = find("speak", HTMLButtonElement);
    this.stopButton = find("stop", HTMLButtonElement);
    this.file = find("file", HTMLInputElement);
    this.typing = find("typing", HTMLTextAreaElement);
    this.captionsBox = find("captions", HTMLElement);
    this.status = find("status", HTMLElement);
    this.level = find("level", HTMLMeterElement);
    this.volume = find("volume", HTMLInputElement);
    this.slider = find("wait-k", HTMLInputElement);
    this.logs = [find("log-heard", HTMLElement), find("log-translated", HTMLElement)];
    this.example = find("example", HTMLSelectElement);
    this.useButton = find("use-example", HTMLButtonElement);
    /** @type {Stream[]} */
    this.streams = [];
    /** @type {Model[]} */
    this.models = [];
    /** @type {Session | null} */
    this.session = null;
    /** @type {import("./sound.js").Source | null} */
    this.source = null;
    /** @type {Player | null} */
    this.player = null;
    /** @type {number[]} Of the lines that ended at the distance of now. */
    this.laggings = [];
    this.talk = new Talk();
    this.listen();
    setInterval(() => this.showLatency(), STRIP);
  }

  /** Forget everything of the session before. */
  forget() {
    this.talk = new Talk();
    this.captionsBox.replaceChildren();
    for (const log of this.logs) log.replaceChildren();
    this.showLatency();
  }

  listen() {
    this.speak.onclick = () => void this.start(null);
    this.stopButton.onclick = () => void this.stop();
    this.choice.onchange = () => this.showChoice();
    this.file.onchange = () => {
      const [file] = this.file.files ?? [];
      this.file.value = "";
      if (file) void this.start(file);
    };
    this.useButton.onclick = () => void this.useExample();
    const drop = find("interpreter", HTMLElement);
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("dropping");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("dropping"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("dropping");
      const file = event.dataTransfer?.files[0];
      if (file && !this.speak.hidden) void this.start(file);
    });
    this.typing.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      void this.type(`${this.typing.value}\n`);
      this.typing.value = "";
    };
    this.volume.oninput = () => this.player?.setVolume(Number(this.volume.value) / 100);
    this.slider.oninput = () => {
      this.laggings = [];
      this.showSlider();
      this.showCurve();
      this.session?.change({ wait_k: this.waitK });
    };
    find("save-text", HTMLButtonElement).onclick = () => this.saveText();
    find("save-subtitles", HTMLButtonElement).onclick = () =>
      save(new Blob([this.talk.captions.subtitles], { type: "text/vtt" }), "transcript.vtt");
    find("save-sent", HTMLButtonElement).onclick = () => save(waveFile(whole(this.talk.sent), this.talk.rate), "sent.wav");
    find("save-voice", HTMLButtonElement).onclick = () =>
      save(waveFile(whole(this.talk.voice), this.player?.context.sampleRate ?? RATE), "voice.wav");
    addEventListener("pagehide", () => this.session?.close());
  }

  /**
   * Show what can be chosen.
   *
   * @param {Stream[]} streams
   * @param {Model[]} models
   */
  setStreams(streams, models) {
    this.models = models;
    if (JSON.stringify(streams) === JSON.stringify(this.streams)) return; // keep the slider where it is
    const before = this.choice.value;
    this.streams = streams;
    this.choice.replaceChildren(
      ...streams.map(({ name, models, takes, gives }) =>
        make("option", { value: name }, `${name}: ${describe(takes, gives)}${models.length > 1 ? ` (${models.join(" → ")})` : ""}`),
      ),
    );
    if (streams.some(({ name }) => name === before)) this.choice.value = before;
    this.showChoice();
  }

  /** @returns {Stream | undefined} */
  get chosen() {
    return this.streams.find(({ name }) => name === this.choice.value);
  }

  /** @returns {Int16Array | null} What was said last, null if nothing was. */
  get spoken() {
    return this.talk.sent.length ? whole(this.talk.sent) : null;
  }

  showChoice() {
    const stream = this.chosen;
    const takesSound = stream?.takes.kind === "sound";
    find("no-streams", HTMLElement).hidden = stream !== undefined;
    find("spoken", HTMLElement).hidden = !takesSound;
    find("typed", HTMLElement).hidden = stream === undefined || takesSound;
    find("heard-volume", HTMLElement).hidden = stream?.gives.kind !== "sound";
    const waitK = stream?.settings.wait_k;
    find("waiting", HTMLElement).hidden = waitK === undefined;
    if (waitK !== undefined) this.slider.value = String(waitK === null ? LAST : Math.min(waitK, LAST - 1));
    this.laggings = [];
    this.showSlider();
    this.showCurve();
    void this.showExamples();
  }

  /** @returns {Model | undefined} The model that takes what goes into the chosen stream. */
  get first() {
    return this.models.find(({ name }) => name === this.chosen?.models[0]);
  }

  async showExamples() {
    const { first } = this;
    const examples = first === undefined ? [] : await examplesOf(first);
    if (first !== this.first) return;
    const takesSound = this.chosen?.takes.kind === "sound";
    const [column] = Object.values(first?.columns ?? {}).flat();
    this.example.replaceChildren(
      ...examples.flatMap((example, n) => {
        const text = String(example.cells[column] ?? "");
        const value = takesSound ? (example.sound ? String(n) : "") : text;
        return value ? [make("option", { value }, titleOf(example, n))] : [];
      }),
    );
    this.useButton.textContent = takesSound ? "Play it to the model" : "Type it";
    find("offered", HTMLElement).hidden = !this.example.length;
  }

  /** Listen to an example, or type it. */
  async useExample() {
    const { first } = this;
    if (first === undefined || this.chosen?.takes.kind !== "sound") return this.type(`${this.example.value}\n`);
    try {
      await this.start(await soundOf(first, Number(this.example.value)));
    } catch (error) {
      this.tell(/** @type {Error} */ (error).message, "problem");
    }
  }

  /** @returns {number} */
  get waitK() {
    const position = Number(this.slider.value);
    return position === LAST ? WHOLE : position;
  }

  showSlider() {
    const text = this.waitK === WHOLE ? "whole lines" : `${plural(this.waitK, "token")} behind`;
    find("wait-k-value", HTMLElement).textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }

  /**
   * Say something in the status line, which screen readers read aloud.
   *
   * @param {string} message
   * @param {"" | "problem"} [kind]
   */
  tell(message, kind = "") {
    if (this.status.textContent !== message) this.status.textContent = message;
    this.status.className = kind;
  }

  /**
   * Begin to listen, to the microphone or to a file.
   *
   * @param {File | null} file
   */
  async start(file) {
    if (this.session !== null) await this.abandon();
    this.forget();
    this.setRunning(true);
    this.tell("Connecting …");
    const begun = this.connect();
    const { takes } = await begun.ready.catch(() => ({ takes: null }));
    if (takes === null || takes.kind !== "sound" || this.session !== begun.session) return;
    this.talk.rate = takes.sample_rate;
    this.talk.capture = new CaptureClock(this.talk.rate);
    const heard = (/** @type {Int16Array} */ pcm, /** @type {number} */ level) => this.hear(pcm, level);
    try {
      const source = file
        ? await fileAsMicrophone(file, this.talk.rate, heard, () => void this.stop())
        : await microphone(this.talk.rate, heard, (message) => {
            this.tell(message, "problem");
            void this.stop();
          });
      if (this.session !== begun.session) return await source.stop();
      this.source = source;
      this.tell(file ? `Listening to ${file.name}, as fast as it was spoken.` : "Listening. Speak now.");
    } catch (error) {
      await this.abandon();
      this.tell(/** @type {Error} */ (error).message, "problem");
    }
  }

  /** @returns {{session: Session, ready: Promise<Ready>}} */
  connect() {
    /** @type {(ready: Ready) => void} */
    let resolve = () => {};
    /** @type {(error: Error) => void} */
    let reject = () => {};
    /** @type {Promise<Ready>} */
    const ready = new Promise((...given) => ([resolve, reject] = given));
    const settings = this.chosen?.settings.wait_k === undefined ? {} : { wait_k: this.waitK };
    const session = new Session(
      this.choice.value,
      {
        ready: (found, again) => {
          this.begin(found, again);
          resolve(found);
        },
        step: (step) => this.show(step),
        sound: (pcm) => this.play(pcm),
        note: (message) => this.tell(message),
        slow: (seconds) =>
          seconds
            ? this.tell(`The network or the server is too slow: what is said arrives ${Math.round(seconds)} s late.`, "problem")
            : this.tell("The network and the server are fast enough again."),
        state: (state, message) => {
          if (message) this.tell(message, "problem");
          if (state === "done") void this.finish();
          if (state === "failed") {
            reject(new Error(message));
            void this.abandon();
          }
        },
      },
      { settings },
    );
    this.session = session;
    return { session, ready };
  }

  /**
   * @param {Ready} ready
   * @param {"" | "resumed" | "anew"} again
   */
  begin(ready, again) {
    if (again === "resumed") {
      this.talk.captions.resume();
      return this.tell("The session goes on where it was interrupted.");
    }
    if (again === "anew") {
      this.changed(this.talk.captions.restart(this.session?.base ?? 0));
      return this.tell(`The server had forgotten the session. ${goesOn(ready)}`, "problem");
    }
    const texts = ready.stages.flatMap(({ gives }, n) => (gives.kind === "text" ? [n] : []));
    this.talk.captions = new Captions(texts, ready.takes.kind === "text");
    if (ready.gives.kind === "sound") {
      this.player = new Player(ready.gives.sample_rate, (at) => this.firstSound(at));
      this.player.setVolume(Number(this.volume.value) / 100);
    }
  }

  /**
   * @param {Int16Array} pcm
   * @param {number} level
   */
  hear(pcm, level) {
    this.talk.sent.push(pcm);
    this.talk.samples += pcm.length;
    this.talk.capture.add(this.talk.samples, performance.now());
    this.level.value = level <= 0 ? 0 : Math.max(0, 1 + Math.log10(level) / 3); // 60 dB
    this.session?.put(pcm);
  }

  /** @param {string} text */
  async type(text) {
    if (!text.trim()) return;
    if (this.session === null || this.session.isOver) {
      this.forget();
      this.setRunning(true);
      try {
        await this.connect().ready;
      } catch {
        return;
      }
      this.tell("Each line is translated or spoken once it is complete.");
    }
    this.changed(this.talk.captions.type(text));
    this.session?.put(text);
  }

  /** @param {Step} step */
  show(step) {
    const now = performance.now();
    const { session } = this;
    if (session === null) return;
    const shift = session.base / this.talk.rate;
    const [arrived, began] = [session.clock.local(step.arrived), session.clock.local(step.began)];
    const isFirst = step.stage === 0 && session.ready?.takes.kind === "sound";
    if (isFirst && arrived !== null) {
      this.talk.latency.add("network", arrived - this.talk.capture.at(session.base + step.taken));
    }
    if (step.arrived > 0 && arrived !== null && began !== null) {
      this.talk.latency.add("queue", Math.max(0, began - arrived));
      this.talk.latency.add("compute", 1000 * (step.ended - step.began));
    }
    for (const word of isFirst ? (step.words ?? []) : []) {
      this.talk.lastWordEnd = shift + (word.end ?? 0);
      this.talk.latency.add("lag", now - this.talk.capture.at(this.talk.lastWordEnd * this.talk.rate));
    }
    if (step.lagging !== undefined) {
      this.laggings.push(step.lagging.tokens);
      this.showCurve();
    }
    this.changed(this.talk.captions.add(step, shift));
  }

  /** @param {number} at */
  firstSound(at) {
    if (this.talk.lastWordEnd) this.talk.latency.add("voice", at - this.talk.capture.at(this.talk.lastWordEnd * this.talk.rate));
  }

  /** @param {Int16Array} pcm */
  play(pcm) {
    this.talk.voice.push(pcm);
    void this.player?.play(pcm);
  }

  /** No more is said; what was said is still computed. */
  async stop() {
    if (this.talk.isStopping || this.session === null) return;
    this.talk.isStopping = true;
    const { source, session } = this;
    this.source = null;
    await source?.stop();
    this.level.value = 0;
    session.end();
    if (!session.isOver) this.tell("The rest is computed …");
  }

  /** All is there. */
  async finish() {
    this.session = null;
    await this.player?.end();
    this.setRunning(false);
    this.log(this.talk.captions.lines.length - 1);
    const words = this.talk.captions.lines.reduce((sum, line) => sum + line.words.length, 0);
    this.tell(`Done: ${plural(words, "word")}.`);
  }

  /** Leave the session as it is. */
  async abandon() {
    const { source, session, player } = this;
    this.source = this.session = this.player = null;
    session?.close();
    this.level.value = 0;
    this.setRunning(false);
    await source?.stop();
    await player?.close();
  }

  /** @param {boolean} isRunning */
  setRunning(isRunning) {
    this.speak.disabled = this.choice.disabled = this.file.disabled = this.useButton.disabled = isRunning;
    this.stopButton.disabled = !isRunning;
    find("spoken", HTMLElement).classList.toggle("running", isRunning);
    if (isRunning && this.player !== null) {
      void this.player.close();
      this.player = null;
    }
  }

  /**
   * Show lines that have changed.
   *
   * @param {Set<number>} numbers
   */
  changed(numbers) {
    const isAtEnd = this.captionsBox.scrollTop + this.captionsBox.clientHeight >= this.captionsBox.scrollHeight - 40;
    for (const number of [...numbers].sort((a, b) => a - b)) {
      while (this.talk.rows.length <= number) {
        const row = make("p", { class: "line", "aria-hidden": "true" });
        this.talk.rows.push(row);
        this.captionsBox.append(row);
      }
      this.fill(this.talk.rows[number], this.talk.captions.lines[number]);
    }
    if (isAtEnd) this.captionsBox.scrollTop = this.captionsBox.scrollHeight;
    for (const number of numbers) this.log(number);
  }

  /**
   * @param {HTMLElement} row
   * @param {import("./captions.js").Line} line
   */
  fill(row, line) {
    const columns = (line.translations.length ? line.translations : []).map((_, which) => under(line, which));
    const pairs = line.words.map((word, n) => {
      const title =
        word.end === undefined ? null : `${(word.start ?? 0).toFixed(2)} to ${word.end.toFixed(2)} seconds`;
      const below = columns.map((column) => {
        const text = n === 0 ? [column[0], column[1]].filter(Boolean).join(" ") : column[n + 1];
        return make("span", { class: "below" }, text ?? "");
      });
      const time = word.end === undefined ? null : make("small", {}, word.end.toFixed(1));
      return make("span", { class: "pair" }, make("span", { class: "word", title }, word.text, time), ...below);
    });
    const tentative = line.tentative ? [make("span", { class: "tentative" }, line.tentative)] : [];
    const lagging =
      line.lagging === null
        ? []
        : [make("span", { class: "lagging", title: "average lagging of this line" }, `AL ${line.lagging.toFixed(1)}`)];
    row.replaceChildren(...pairs, ...tentative, ...lagging);
  }

  /**
   * Let screen readers have what is final of a line and of the one before: several words at a time, or the rest of a
   * line that is over.  Who types a line knows it.
   *
   * @param {number} last
   */
  log(last) {
    const { captions, logged } = this.talk;
    for (const number of [last - 1, last].filter((own) => own in captions.lines)) {
      const { words, translations } = captions.lines[number];
      const isOver = this.session === null || number < captions.lines.length - 1;
      const had = (logged[number] ??= []);
      [captions.isTyped ? [] : words, ...translations].forEach((row, n) => {
        const told = had[n] ?? 0;
        if (row.length - told < (isOver ? 1 : AT_ONCE)) return;
        this.logs[Math.min(n, 1)].append(make("p", {}, joined(row.slice(told).map(({ text }) => text))));
        had[n] = row.length;
      });
    }
  }

  showLatency() {
    if (this.player !== null) this.talk.latency.add("buffer", 1000 * this.player.buffered);
    for (const part of PARTS) {
      const found = this.talk.latency.summary(part);
      const cell = find(`latency-${part}`, HTMLElement);
      const gaps = part === "buffer" && this.player?.gaps ? `, ${plural(this.player.gaps, "gap")}` : "";
      cell.textContent = found === null ? "–" : `${duration(found.median)}${gaps}`;
      const high = cell.nextElementSibling;
      if (high) high.textContent = found === null || part === "buffer" ? "" : `95 %: ${duration(found.high)}`;
    }
    const has = { text: this.talk.captions.lines, subtitles: this.talk.sent, sent: this.talk.sent, voice: this.talk.voice };
    for (const [what, pieces] of Object.entries(has)) find(`save-${what}`, HTMLButtonElement).disabled = !pieces.length;
    const best = this.session?.clock.best;
    find("clock", HTMLElement).textContent = best
      ? `The clocks of page and server are compared to within ${duration(best.roundTrip / 2)}.`
      : "";
  }

  /** Show the lagging of the lines so far, and quality against latency as the run of the model has measured it. */
  showCurve() {
    if (this.chosen?.settings.wait_k === undefined) return;
    const curve = this.models.find(({ name, latency }) => latency && this.chosen?.models.includes(name))?.latency;
    const live = this.laggings.length
      ? this.laggings.reduce((sum, lagging) => sum + lagging, 0) / this.laggings.length
      : null;
    const sentences = [
      "AL, average lagging, is how many tokens a translation is behind.",
      live === null ? "" : `The lines at this distance so far: ${live.toFixed(1)}.`,
      curve ? `The curve is the ${METRICS[curve.metric] ?? curve.metric} of the run. Filled dots are distances that it was trained for.` : "",
    ];
    find("lagging", HTMLElement).textContent = sentences.filter(Boolean).join(" ");
    const box = find("curve", HTMLElement);
    box.hidden = !curve;
    if (!curve) return;
    const points = curve.points.map(({ lagging, score, trained }) => ({ x: lagging, y: score, isHollow: !trained }));
    draw(box, {
      x: "tokens of AL",
      y: METRICS[curve.metric] ?? curve.metric,
      from: 0,
      mark: live === null ? undefined : { x: live, name: "lines so far" },
      series: [
        { name: "the run", points, dots: true },
        { name: "this distance", points: [pointAt(curve, this.waitK === WHOLE ? null : this.waitK)], dots: true },
      ],
    });
  }

  saveText() {
    const lines = this.talk.captions.lines.flatMap((line, n) => [
      this.talk.captions.transcript[n],
      ...line.translations.map((words) => `    ${words.map(({ text }) => text).join(" ")}`),
    ]);
    save(new Blob([`${lines.join("\n")}\n`], { type: "text/plain" }), "transcript.txt");
  }
}

/**
 * Return how another session goes on in the place of one that was forgotten.
 *
 * @param {Ready} ready
 */
function goesOn({ takes, stages }) {
  if (takes.kind === "text") return "Send the lines again that have no answer.";
  const missing = stages.length > 1 ? ", but what was not translated or spoken before is missing" : "";
  return `Another one goes on after the last final word${missing}.`;
}

/**
 * @param {Int16Array[]} pieces
 * @returns {Int16Array}
 */
function whole(pieces) {
  const all = new Int16Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  pieces.reduce((at, piece) => (all.set(piece, at), at + piece.length), 0);
  return all;
}

/**
 * @param {import("./session.js").Medium} takes
 * @param {import("./session.js").Medium} gives
 */
function describe(takes, gives) {
  if (takes.kind === "sound") return gives.kind === "sound" ? "speech to speech" : "speech to text";
  return gives.kind === "sound" ? "text to speech" : "text to text";
}
