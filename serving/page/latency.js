// @ts-check
/** Where the time goes between a sound and its words, and its translation. */

const KEPT = 50; // last values of each part

/** The parts of the way; the page says what each of them is. */
export const PARTS = ["network", "queue", "compute", "lag", "voice", "buffer"];

/** The last values of each part, in milliseconds. */
export class Latency {
  constructor() {
    /** @type {Record<string, number[]>} */
    this.values = Object.fromEntries(PARTS.map((part) => [part, []]));
  }

  /**
   * @param {string} part
   * @param {number} milliseconds
   */
  add(part, milliseconds) {
    const own = this.values[part];
    own.push(milliseconds);
    if (own.length > KEPT) own.shift();
  }

  /**
   * Return the median and the 95th percentile of the last values; null if there are none.
   *
   * @param {string} part
   * @returns {{median: number, high: number} | null}
   */
  summary(part) {
    const sorted = [...this.values[part]].sort((a, b) => a - b);
    if (!sorted.length) return null;
    const at = (/** @type {number} */ share) => sorted[Math.ceil(share * sorted.length) - 1];
    return { median: at(0.5), high: at(0.95) };
  }
}

/**
 * When samples were captured, by the clock of the page.
 *
 * A piece comes some time after its last sample, and never before: the earliest that a piece came, relative to its
 * place, tells when the first sample was captured.
 */
export class CaptureClock {
  /** @param {number} rate Samples a second. */
  constructor(rate) {
    this.rate = rate;
    this.origin = Infinity;
  }

  /**
   * Learn that a piece that ends at a sample came at a time, in milliseconds.
   *
   * @param {number} end
   * @param {number} now
   */
  add(end, now) {
    this.origin = Math.min(this.origin, now - (1000 * end) / this.rate);
  }

  /**
   * Return when a sample was captured.
   *
   * @param {number} sample
   */
  at(sample) {
    return this.origin + (1000 * sample) / this.rate;
  }
}
