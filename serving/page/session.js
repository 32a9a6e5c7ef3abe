// @ts-check
/** A session with the server (docs/reference/streaming.md), which goes on after an interruption. */

import { key, Refusal, ask, sentence, subprotocols } from "./api.js";
import { Clock } from "./clock.js";

const [LEAVING, FULL] = [1001, 1013]; // codes with which the server closes a connection
const PING = 1000; // milliseconds between two measurements of the clock
const RETRIES = [250, 500, 500, 1000, 1000, 2000, 2000, 4000, 8000, 8000, 8000]; // milliseconds before each try to connect
const SILENT = 10; // pings without a message from the server, after which the connection counts as lost
const LATE = 2; // seconds after which sound may come to the server before the network counts as too slow
const KEPT = 10; // seconds of sound that are kept for a new session when they have no final word

/** @typedef {Int16Array | string} Input Sound, or text. */
/** @typedef {{kind: "text"} | {kind: "sound", sample_rate: number}} Medium */
/** @typedef {{text: string, line: number, start?: number, end?: number, after?: number}} Word */
/**
 * @typedef {{stage: number, taken: number, arrived: number, began: number, ended: number, together: number,
 *   text?: string, samples?: number, words?: Word[], tentative?: string,
 *   lagging?: {line: number, tokens: number}}} Step
 * @typedef {{takes: Medium, gives: Medium, received: number, resumable: boolean, settings: Record<string, any>,
 *   stages: {model: string, gives: Medium}[]}} Ready
 * @typedef {{ready?: (ready: Ready, again: "" | "resumed" | "anew") => void, step?: (step: Step) => void,
 *   sound?: (pcm: Int16Array) => void, note?: (message: string) => void, slow?: (seconds: number) => void,
 *   state?: (state: State, message: string) => void}} Handlers
 * @typedef {"connecting" | "live" | "interrupted" | "done" | "failed" | "closed"} State
 */

/** The input that was given to a session and that it may need again, with the place of each piece in all of it. */
export class InputLog {
  constructor() {
    /** @type {{begin: number, piece: Input}[]} */
    this.pieces = [];
    this.end = 0;
  }

  /** @param {Input} piece */
  push(piece) {
    this.pieces.push({ begin: this.end, piece });
    this.end += sizeOf(piece);
  }

  /**
   * Forget the pieces that end before a place.
   *
   * @param {number} place
   */
  forget(place) {
    while (this.pieces.length && this.pieces[0].begin + sizeOf(this.pieces[0].piece) <= place) this.pieces.shift();
  }

  /**
   * Return everything from a place on.
   *
   * @param {number} place
   * @returns {Input[]}
   */
  after(place) {
    return this.pieces.flatMap(({ begin, piece }) => {
      if (begin + sizeOf(piece) <= place) return [];
      const cut = Math.max(0, place - begin);
      return [typeof piece === "string" ? [...piece].slice(cut).join("") : piece.subarray(cut)];
    });
  }
}

/**
 * The size of a piece of input: samples, or characters of Unicode.
 *
 * @param {Input} piece
 */
function sizeOf(piece) {
  return typeof piece === "string" ? [...piece].length : piece.length;
}

export class Session {
  /**
   * @param {string} model The name of a model, or of a chain of models.
   * @param {Handlers} handlers
   * @param {{settings?: Record<string, any>, follow?: boolean}} [options]
   */
  constructor(model, handlers, { settings = {}, follow = true } = {}) {
    this.model = model;
    this.handlers = handlers;
    this.settings = settings;
    this.follow = follow;
    this.clock = new Clock();
    this.log = new InputLog();
    /** The place in all input at which the present session of the server began. */
    this.base = 0;
    /** The place in all input after which a session that begins anew has to go on. */
    this.final = 0;
    this.silent = 0; // pings since the last message
    /** @type {number[]} When the pings that are not answered yet were sent. */
    this.pings = [];
    this.isSlow = false;
    this.tolerated = Infinity; // seconds after which sound may come to the server
    /** @type {State} */
    this.state = "connecting";
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {string | null} */
    this.token = null;
    /** @type {Ready | null} */
    this.ready = null;
    this.isEnding = false;
    this.tries = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.ping = setInterval(() => this.measure(), PING);
    this.connect();
  }

  /** @param {Input} piece */
  put(piece) {
    if (!sizeOf(piece)) return;
    this.log.push(piece);
    if (this.state !== "live") return;
    this.write(piece);
    this.watch();
  }

  /** No more input comes; the rest of the output does. */
  end() {
    this.isEnding = true;
    if (this.state === "live") this.say({ type: "end" });
  }

  /**
   * Change settings of the models from now on.
   *
   * @param {Record<string, any>} settings
   */
  change(settings) {
    this.settings = { ...this.settings, ...settings };
    if (this.state === "live") this.say({ type: "set", settings });
  }

  /** Leave; the server forgets everything at once. */
  close() {
    if (!this.isOver) this.become("closed", "");
  }

  get isOver() {
    return ["done", "failed", "closed"].includes(this.state);
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const url = `${scheme}//${location.host}/models/${encodeURIComponent(this.model)}/stream`;
    const socket = new WebSocket(url, subprotocols());
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    /** @type {{code: number, message: string} | null} */
    let failure = null;
    let wasOpen = false;
    let hasBegun = false;
    socket.onopen = () => {
      wasOpen = true;
      const resume = this.token === null ? {} : { resume: this.token };
      this.say({ type: "start", follow: this.follow, settings: this.settings, ...resume });
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket || this.isOver) return;
      this.silent = 0;
      if (data instanceof ArrayBuffer) {
        this.handlers.sound?.(new Int16Array(data));
        return;
      }
      const message = JSON.parse(data);
      if (message.type === "error") failure = message;
      else this.hear(message);
      hasBegun ||= message.type === "ready";
    };
    socket.onclose = ({ code }) => {
      if (socket !== this.socket || this.isOver) return;
      const isFull = code === FULL && this.ready !== null && !hasBegun; // others were faster after an interruption
      if (failure !== null && code !== LEAVING && !isFull) {
        if (this.token !== null) this.token = null; // nobody keeps it any more: begin anew
        else return this.become("failed", sentence(failure.message));
      }
      void this.retry(wasOpen, isFull ? sentence(failure?.message ?? "") : "");
    };
  }

  /** @param {any} message */
  hear(message) {
    if (message.type === "ready") this.begin(message);
    else if (message.type === "step") {
      if (message.stage === 0) this.settle(message);
      this.handlers.step?.(message);
    } else if (message.type === "pong") {
      this.clock.add(message.time, message.at, performance.now());
      this.pings = this.pings.filter((sentAt) => sentAt > message.time);
    } else if (message.type === "note") {
      this.handlers.note?.(sentence(message.message));
    } else if (message.type === "state") {
      this.token = message.token;
    } else if (message.type === "done") {
      this.become("done", "");
    }
  }

  /**
   * Forget the input that nobody needs any more.  Of sound, that after the last final word is kept: a session that
   * begins anew has not heard it.
   *
   * @param {Step} step
   */
  settle({ taken, words }) {
    const place = this.base + taken;
    const { takes } = /** @type {Ready} */ (this.ready);
    if (takes.kind === "sound") {
      const end = words?.at(-1)?.end;
      if (end !== undefined) this.final = this.base + Math.round(end * takes.sample_rate);
      this.final = Math.min(place, Math.max(this.final, place - KEPT * takes.sample_rate));
    } else this.final = place;
    this.log.forget(this.final);
  }

  /** @param {Ready} ready */
  begin(ready) {
    const isFirst = this.ready === null;
    const again = isFirst ? "" : this.token === null ? "anew" : "resumed";
    if (again === "anew") this.base = this.final;
    this.ready = ready;
    this.token = null;
    this.tries = this.silent = 0;
    this.pings = [];
    this.become("live", "");
    this.measure();
    this.handlers.ready?.(ready, again);
    for (const piece of this.log.after(this.base + ready.received)) this.write(piece);
    this.tolerated = Infinity; // what was sent just now may take its time
    if (this.isEnding) this.say({ type: "end" });
  }

  /**
   * Connect again, later each time.
   *
   * @param {boolean} wasOpen
   * @param {string} why
   */
  async retry(wasOpen, why = "") {
    this.become("interrupted", `${why || "The connection is interrupted."} The page tries to go on.`);
    if (!wasOpen) {
      try {
        await ask("/models");
      } catch (error) {
        if (error instanceof Refusal && [401, 403].includes(error.status)) {
          this.become("failed", key() ? error.message : "This server asks for a key. Enter it under Key, above.");
          return;
        }
      }
    }
    if (this.isOver) return;
    if (this.tries >= RETRIES.length) {
      this.become("failed", why || "The server has not answered for half a minute. Start again once it runs.");
      return;
    }
    const delay = RETRIES[this.tries] * (1 - Math.random() / 4); // not all pages at the same time
    this.timer = setTimeout(() => this.connect(), delay);
    this.tries += 1;
  }

  /** @param {Input} piece */
  write(piece) {
    if (typeof piece === "string") {
      this.say({ type: "text", text: piece });
      return;
    }
    this.socket?.send(/** @type {ArrayBufferView<ArrayBuffer>} */ (piece));
  }

  /** Tell whether sound comes to the server later and later: it waits in the browser, or in the network. */
  watch() {
    if (this.ready?.takes.kind !== "sound") return;
    const here = (this.socket?.bufferedAmount ?? 0) / 2 / this.ready.takes.sample_rate;
    const late = Math.max(here, this.pings.length ? (performance.now() - this.pings[0]) / 1000 : 0);
    this.tolerated = Math.max(LATE, Math.min(this.tolerated, late + LATE));
    const isSlow = late > (this.isSlow ? LATE / 4 : this.tolerated);
    if (isSlow || this.isSlow) this.handlers.slow?.(isSlow ? late : 0);
    this.isSlow = isSlow;
  }

  /** Ask what time it is; leave a connection on which nothing comes any more. */
  measure() {
    if (this.state !== "live") return;
    if (this.silent < SILENT) {
      this.silent += 1;
      const time = performance.now();
      this.pings.push(time);
      this.say({ type: "ping", time });
      return;
    }
    const lost = this.socket;
    this.socket = null;
    lost?.close();
    void this.retry(true);
  }

  /** @param {Record<string, unknown>} message */
  say(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /**
   * @param {State} state
   * @param {string} message
   */
  become(state, message) {
    this.state = state;
    if (this.isOver) {
      clearInterval(this.ping);
      clearTimeout(this.timer);
      this.socket?.close();
    }
    this.handlers.state?.(state, message);
  }
}
