// @ts-check
/** Metrics in the text format of Prometheus, and what happens between two readings of them. */

/** @typedef {{name: string, labels: Record<string, string>, value: number}} Sample */

/**
 * Return the samples of a text; lines that are none are comments.
 *
 * @param {string} text
 * @returns {Sample[]}
 */
export function parse(text) {
  return text.split("\n").flatMap((line) => {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (found === null) return [];
    const labels = Object.fromEntries(
      [...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [
        name,
        value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter)),
      ]),
    );
    return [{ name: found[1], labels, value: Number(found[3].replace("Inf", "Infinity")) }];
  });
}

/** One reading of all metrics. */
export class Reading {
  /**
   * @param {string} text
   * @param {number} at Milliseconds.
   */
  constructor(text, at) {
    this.at = at;
    this.samples = parse(text);
  }

  /**
   * Return the sum of a metric over all labels, or over those that fit.
   *
   * @param {string} name
   * @param {(labels: Record<string, string>) => boolean} [fits]
   */
  sum(name, fits = () => true) {
    return this.samples.reduce((sum, own) => (own.name === name && fits(own.labels) ? sum + own.value : sum), 0);
  }

  /**
   * Return the cumulative counts of a histogram over all labels, by the upper ends of its buckets.
   *
   * @param {string} name
   * @returns {Map<number, number>}
   */
  buckets(name) {
    const found = new Map();
    for (const own of this.samples) {
      if (own.name !== `${name}_bucket`) continue;
      const end = Number(own.labels.le.replace("Inf", "Infinity"));
      found.set(end, (found.get(end) ?? 0) + own.value);
    }
    return new Map([...found].sort(([a], [b]) => a - b));
  }
}

/** What happened between two readings; a server that was started again in between has begun to count at 0. */
export class Change {
  /**
   * @param {Reading} before
   * @param {Reading} after
   */
  constructor(before, after) {
    this.before = before;
    this.after = after;
    this.seconds = Math.max(1e-3, (after.at - before.at) / 1000);
  }

  /** @param {string} name */
  more(name) {
    const [before, after] = [this.before.sum(name), this.after.sum(name)];
    return after < before ? after : after - before;
  }

  /** @param {string} name */
  rate(name) {
    return this.more(name) / this.seconds;
  }

  /**
   * Return the mean of what a histogram has observed; null if it has observed nothing.
   *
   * @param {string} name
   */
  mean(name) {
    const count = this.more(`${name}_count`);
    return count ? this.more(`${name}_sum`) / count : null;
  }

  /**
   * Return the value below which a share of the observations was, interpolated in its bucket; null without any.
   *
   * @param {string} name
   * @param {number} share
   */
  quantile(name, share) {
    const before = this.before.buckets(name);
    const counts = [...this.after.buckets(name)].map(
      ([end, count]) => /** @type {[number, number]} */ ([end, Math.max(0, count - (before.get(end) ?? 0))]),
    );
    const total = counts.at(-1)?.[1] ?? 0;
    if (!total) return null;
    let [begin, below] = [0, 0];
    for (const [end, count] of counts) {
      if (count >= share * total) {
        return end === Infinity ? begin : begin + ((share * total - below) / (count - below || 1)) * (end - begin);
      }
      [begin, below] = [end, count];
    }
    return begin;
  }
}
