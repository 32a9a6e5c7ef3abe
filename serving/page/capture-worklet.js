// @ts-check
/** Runs in the thread of the sound: what the microphone hears, in pieces of 16-bit PCM at the model's rate. */

import { Resampler, toPcm16 } from "./resample.js";

const SECONDS = 0.04; // of a piece: 25 messages a second

class Capture extends AudioWorkletProcessor {
  /** @param {{processorOptions: {rate: number}}} options */
  constructor(options) {
    super();
    const { rate } = options.processorOptions;
    this.resampler = new Resampler(sampleRate, rate);
    this.size = Math.round(SECONDS * rate);
    /** @type {Float32Array[]} */
    this.pieces = [];
    this.waiting = 0;
    this.isOver = false;
    this.port.onmessage = () => {
      this.add(this.resampler.rest());
      this.send(this.waiting);
      this.port.postMessage({ over: true });
      this.isOver = true;
    };
  }

  /** @param {Float32Array[][]} inputs */
  process([channels]) {
    if (this.isOver) return false;
    if (channels === undefined || !channels.length) return true;
    const mixed = new Float32Array(channels[0].length);
    for (const channel of channels) channel.forEach((x, n) => (mixed[n] += x / channels.length));
    this.add(this.resampler.more(mixed));
    while (this.waiting >= this.size) this.send(this.size);
    return true;
  }

  /** @param {Float32Array} samples */
  add(samples) {
    this.pieces.push(samples);
    this.waiting += samples.length;
  }

  /** @param {number} size */
  send(size) {
    if (!size) return;
    const all = new Float32Array(this.waiting);
    let at = 0;
    for (const piece of this.pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    const piece = all.subarray(0, size);
    this.pieces = [all.slice(size)];
    this.waiting -= size;
    const level = Math.sqrt(piece.reduce((sum, x) => sum + x * x, 0) / size);
    const pcm = toPcm16(piece);
    this.port.postMessage({ pcm, level }, [pcm.buffer]);
  }
}

registerProcessor("capture", Capture);
