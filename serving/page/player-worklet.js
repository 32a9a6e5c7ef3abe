// @ts-check
/** Runs in the thread of the sound: plays what comes from the voice, and counts when there was nothing to play. */

import { Ring } from "./ring.js";

const REPORT = 0.1; // seconds between two reports
const CROSSFADE = 64; // samples over which a gap is entered: a sudden silence would click

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Ring(Math.ceil(10 * sampleRate));
    this.isPlaying = false;
    this.isEnding = false; // nothing more is to come: running empty is no gap
    this.gaps = 0;
    this.last = 0; // the last sample
    this.untilReport = 0;
    this.port.onmessage = ({ data }) => {
      if (data.samples) {
        this.ring.push(data.samples);
        this.isEnding = false;
      }
      if (data.end) this.isEnding = true;
      if (data.clear) this.ring.clear();
    };
  }

  /**
   * @param {Float32Array[][]} _
   * @param {Float32Array[][]} outputs
   */
  process(_, [[output]]) {
    const wasPlaying = this.isPlaying;
    const count = this.ring.take(output);
    this.isPlaying = count === output.length;
    if (!wasPlaying && count) this.port.postMessage({ began: currentTime });
    if (wasPlaying && count < output.length) {
      const from = count ? output[count - 1] : this.last;
      for (let n = count; n < Math.min(output.length, count + CROSSFADE); n += 1) {
        output[n] = from * (1 - (n - count + 1) / CROSSFADE);
      }
      if (!this.isEnding) this.gaps += 1;
    }
    this.last = output[output.length - 1];
    this.untilReport -= output.length / sampleRate;
    if (this.untilReport <= 0) {
      this.untilReport = REPORT;
      this.port.postMessage({ buffered: this.ring.length / sampleRate, gaps: this.gaps });
    }
    return true;
  }
}

registerProcessor("player", Player);
