// @ts-check
/** Sound at another rate, piece by piece: a low-pass and an interpolation in one, by a windowed sinc. */

const ZEROS = 24; // zero crossings of the sinc on each side
const PHASES = 512; // entries of the table between two crossings
const BETA = 9; // of the Kaiser window: about 90 dB
const PASSED = 0.93; // of the band that both rates have

/**
 * The modified Bessel function of order 0, by its series.
 *
 * @param {number} x
 */
function bessel(x) {
  let sum = 1;
  for (let term = 1, k = 1; term > 1e-12 * sum; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

/** Half of the windowed sinc: PHASES values from each zero crossing to the next, and one more for interpolation. */
const TABLE = Float32Array.from({ length: ZEROS * PHASES + 2 }, (_, n) => {
  const x = n / PHASES;
  if (x >= ZEROS) return 0;
  const sinc = x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
  return (sinc * bessel(BETA * Math.sqrt(1 - (x / ZEROS) ** 2))) / bessel(BETA);
});

/** Turns a stream of samples into one with another rate; the output does not depend on how the input is cut. */
export class Resampler {
  /**
   * @param {number} from Samples a second of the input.
   * @param {number} to Samples a second of the output.
   */
  constructor(from, to) {
    this.from = from;
    this.to = to;
    this.scale = Math.min(1, to / from) * (from === to ? 1 : PASSED); // of the sinc: its cutoff
    this.reach = from === to ? 0 : Math.ceil(ZEROS / this.scale); // input samples on each side of an output sample
    this.held = new Float32Array(this.reach); // silence before the first sample
    this.first = -this.reach; // the number of the first held sample
    this.made = 0; // output samples
    this.given = 0; // input samples
  }

  /**
   * Return the output that more input makes known.
   *
   * @param {Float32Array} samples
   * @returns {Float32Array}
   */
  more(samples) {
    this.given += samples.length;
    if (!this.reach) return samples;
    return this.extend(samples, Math.ceil(((this.given - this.reach) * this.to) / this.from));
  }

  /**
   * Return the rest of the output, when no more input comes.
   *
   * @returns {Float32Array}
   */
  rest() {
    if (!this.reach) return new Float32Array(0);
    return this.extend(new Float32Array(this.reach + 1), Math.ceil((this.given * this.to) / this.from));
  }

  /**
   * @param {Float32Array} samples
   * @param {number} until The number of output samples that there are to be then.
   */
  extend(samples, until) {
    const all = new Float32Array(this.held.length + samples.length);
    all.set(this.held);
    all.set(samples, this.held.length);
    const output = new Float32Array(Math.max(0, until - this.made));
    for (let n = 0; n < output.length; n += 1) {
      const place = (this.made + n) * this.from; // in parts of an input sample, to be exact however the input is cut
      const whole = Math.floor(place / this.to);
      output[n] = this.sample(all, whole - this.first, (place - whole * this.to) / this.to);
    }
    this.made += output.length;
    const keep = Math.max(0, Math.floor((this.made * this.from) / this.to) - this.reach - this.first);
    this.held = all.slice(keep);
    this.first += keep;
    return output;
  }

  /**
   * Return the value between a sample and the next, at a fraction of the way.
   *
   * @param {Float32Array} all
   * @param {number} whole
   * @param {number} fraction
   */
  sample(all, whole, fraction) {
    const end = Math.min(all.length - 1, whole + this.reach);
    let sum = 0;
    for (let n = Math.max(0, whole - this.reach + 1); n <= end; n += 1) {
      const x = Math.min(Math.abs(n - whole - fraction) * this.scale * PHASES, ZEROS * PHASES);
      const entry = Math.floor(x);
      sum += all[n] * (TABLE[entry] + (x - entry) * (TABLE[entry + 1] - TABLE[entry]));
    }
    return sum * this.scale;
  }
}

/**
 * Return samples between -1 and 1 as 16-bit PCM.
 *
 * @param {Float32Array} samples
 * @returns {Int16Array}
 */
export function toPcm16(samples) {
  return Int16Array.from(samples, (x) => Math.max(-32768, Math.min(32767, Math.round(32768 * x))));
}

/**
 * Return 16-bit PCM as samples between -1 and 1.
 *
 * @param {Int16Array} pcm
 * @returns {Float32Array}
 */
export function ofPcm16(pcm) {
  return Float32Array.from(pcm, (x) => x / 32768);
}
