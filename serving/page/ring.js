// @ts-check
/** A queue of samples in one array, which grows rather than loses any. */

export class Ring {
  /** @param {number} size The samples that it has room for at first. */
  constructor(size) {
    this.buffer = new Float32Array(size);
    this.begin = 0;
    this.length = 0;
  }

  /** @param {Float32Array} samples */
  push(samples) {
    while (this.length + samples.length > this.buffer.length) this.grow();
    const end = (this.begin + this.length) % this.buffer.length;
    const first = Math.min(samples.length, this.buffer.length - end);
    this.buffer.set(samples.subarray(0, first), end);
    this.buffer.set(samples.subarray(first), 0);
    this.length += samples.length;
  }

  /**
   * Fill an array from the beginning of the queue, with silence after its end; return how many samples there were.
   *
   * @param {Float32Array} output
   */
  take(output) {
    const count = Math.min(output.length, this.length);
    const first = Math.min(count, this.buffer.length - this.begin);
    output.set(this.buffer.subarray(this.begin, this.begin + first));
    output.set(this.buffer.subarray(0, count - first), first);
    output.fill(0, count);
    this.begin = (this.begin + count) % this.buffer.length;
    this.length -= count;
    return count;
  }

  clear() {
    this.begin = 0;
    this.length = 0;
  }

  grow() {
    const larger = new Float32Array(2 * this.buffer.length);
    const first = Math.min(this.length, this.buffer.length - this.begin);
    larger.set(this.buffer.subarray(this.begin, this.begin + first));
    larger.set(this.buffer.subarray(0, this.length - first), first);
    this.buffer = larger;
    this.begin = 0;
  }
}
