// @ts-check
/** The operator's view: what the server does right now, and many sessions at the press of a button. */

import { ask, subprotocols } from "./api.js";
import { find, make } from "./dom.js";
import { draw, short } from "./plot.js";
import { Change, Reading } from "./prometheus.js";

const EVERY = 1000; // milliseconds between two readings
const KEPT = 120; // readings
const SOON = 30; // readings that the plots have room for at first
const LINES = [
  "The quick brown fox jumps over the lazy dog.",
  "We had the best seats in the house tonight.",
  "Everyone laughed, and the last one applauded.",
  "It rained for hours before the sun came out.",
];

/** @typedef {import("./app.js").Stream} Stream */
/** @typedef {{at: number, values: Record<string, number | null>}} Moment */

/**
 * The plots: what they are called, their unit, and their lines by name.
 *
 * @type {Record<string, [string, Record<string, (change: Change) => number | null>]>}
 */
const PLOTS = {
  sessions: ["Sessions", { "live sessions": (change) => change.after.sum("ernie_sessions") }],
  batches: ["Inputs in a batch", { mean: (change) => change.mean("ernie_batch_inputs") }],
  tokens: ["Tokens a second", { tokens: (change) => change.rate("ernie_batch_tokens_sum") }],
  queue: ["Requests and steps that wait", { waiting: (change) => change.after.sum("ernie_waiting_requests") }],
  waits: [
    "Milliseconds until a batch",
    {
      median: (change) => inMilliseconds(change.quantile("ernie_wait_seconds", 0.5)),
      "99 %": (change) => inMilliseconds(change.quantile("ernie_wait_seconds", 0.99)),
    },
  ],
  refused: [
    "Refusals and errors a second",
    {
      refused: (change) => change.rate("ernie_refused_total"),
      expired: (change) => change.rate("ernie_expired_total"),
    },
  ],
};

/** @param {number | null} seconds */
function inMilliseconds(seconds) {
  return seconds === null ? null : 1000 * seconds;
}

export class Server {
  constructor() {
    /** @type {Moment[]} */
    this.moments = [];
    /** @type {Reading | null} */
    this.last = null;
    this.isShown = false;
    this.status = find("server-status", HTMLElement);
    this.choice = find("crowd-stream", HTMLSelectElement);
    this.crowdStatus = find("crowd-status", HTMLElement);
    /** @type {Worker | null} */
    this.crowd = null;
    /** @type {() => Int16Array | null} The sound that the crowd repeats, if somebody has spoken. */
    this.spoken = () => null;
    this.boxes = Object.fromEntries(
      Object.keys(PLOTS).map((name) => {
        const [box, value] = [make("div", { class: "plot-box" }), make("strong")];
        const caption = make("figcaption", {}, make("span", {}, PLOTS[name][0]), value);
        find("plots", HTMLElement).append(make("figure", { class: "card" }, caption, box));
        return [name, { box, value }];
      }),
    );
    for (const button of document.querySelectorAll("button[data-join]")) {
      button.addEventListener("click", () => this.join(Number(/** @type {HTMLElement} */ (button).dataset.join)));
    }
    find("crowd-leave", HTMLButtonElement).onclick = () => this.crowd?.postMessage({ leave: true });
    setInterval(() => void this.read(), EVERY);
    this.draw();
  }

  /** @param {Stream[]} streams */
  setStreams(streams) {
    this.streams = streams;
    this.choice.replaceChildren(...streams.map(({ name }) => make("option", { value: name }, name)));
    find("crowd", HTMLElement).hidden = !streams.length;
  }

  async read() {
    if (!this.isShown || document.hidden) return;
    let text;
    try {
      text = await (await ask("/metrics")).text();
    } catch (error) {
      this.status.textContent = /** @type {Error} */ (error).message;
      this.last = null;
      return;
    }
    const reading = new Reading(text, performance.now());
    if (this.last !== null) {
      const change = new Change(this.last, reading);
      const values = Object.fromEntries(
        Object.values(PLOTS).flatMap(([unit, lines]) =>
          Object.entries(lines).map(([name, value]) => [`${unit}/${name}`, value(change)]),
        ),
      );
      this.moments.push({ at: reading.at, values });
      if (this.moments.length > KEPT) this.moments.shift();
      const [requests, seconds] = [change.rate("ernie_http_requests_total"), change.rate("ernie_batch_seconds_sum")];
      this.status.textContent =
        `${short(requests)} requests a second. The engine computes ${Math.min(100, Math.round(100 * seconds))} % of ` +
        `the time. The process has ${short(reading.sum("process_resident_memory_bytes") / 1e6)} MB.`;
      this.draw();
    }
    this.last = reading;
  }

  draw() {
    const now = this.moments.at(-1)?.at ?? 0;
    for (const [plot, [unit, lines]] of Object.entries(PLOTS)) {
      const series = Object.keys(lines).map((name) => ({
        name,
        points: this.moments.flatMap(({ at, values }) => {
          const value = values[`${unit}/${name}`];
          return value === null ? [] : [{ x: (at - now) / 1000, y: value }];
        }),
      }));
      const { box, value } = this.boxes[plot];
      value.textContent = series.map(({ points }) => (points.length ? short(points[points.length - 1].y) : "–")).join(" / ");
      draw(box, { x: "s", y: unit, from: -(this.moments.length > SOON ? KEPT : SOON) * (EVERY / 1000), to: 0, series });
    }
  }

  /** @param {number} count */
  join(count) {
    if (this.crowd === null) {
      this.crowd = new Worker(new URL("./crowd-worker.js", import.meta.url), { type: "module" });
      this.crowd.onmessage = ({ data }) => this.showCrowd(data);
    }
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const url = `${scheme}//${location.host}/models/${encodeURIComponent(this.choice.value)}/stream`;
    const plan = { url, protocols: subprotocols(), sound: this.spoken(), lines: LINES };
    this.crowd.postMessage({ join: count, plan });
  }

  /** @param {{open: number, wanted: number, refused: [string, number][]}} data */
  showCrowd({ open, wanted, refused }) {
    const problems = refused.map(([message, count]) => ` Refused ${count} times: ${message}.`).join("");
    this.crowdStatus.textContent = `${open} of ${wanted} synthetic sessions are open.${problems}`;
  }
}
