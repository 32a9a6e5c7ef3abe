// @ts-check
/** The microphone and the loudspeaker. */

import { Resampler, ofPcm16, toPcm16 } from "./resample.js";
import { readSound } from "./wave.js";

const PIECE = 0.04; // seconds of a file that are sent at a time, as from the microphone

/** @typedef {(pcm: Int16Array, level: number) => void} Heard */
/** @typedef {{stop: () => Promise<void>}} Source */

/** @type {Record<string, string>} Why there is no microphone, by the browser's name for it. */
const REFUSED = {
  NotAllowedError:
    "The browser does not let this page use the microphone. Allow it beside the address, or open a file instead.",
  NotFoundError: "There is no microphone here. Connect one, or open a file instead.",
  NotReadableError: "Another program uses the microphone. Close that program, or open a file instead.",
  OverconstrainedError: "The microphone does not give what this page needs. Choose another one, or open a file instead.",
};

/**
 * Return a context at a rate, or, in browsers that refuse it for a microphone, at their own.
 *
 * @param {number} rate
 * @param {MediaStream} stream
 * @returns {[AudioContext, MediaStreamAudioSourceNode]}
 */
function listening(rate, stream) {
  try {
    const context = new AudioContext({ sampleRate: rate });
    return [context, context.createMediaStreamSource(stream)];
  } catch {
    const context = new AudioContext();
    return [context, context.createMediaStreamSource(stream)];
  }
}

/**
 * Listen to the microphone.  Throws an Error, with a sentence, if that is impossible.
 *
 * @param {number} rate The samples a second of what `heard` gets.
 * @param {Heard} heard
 * @param {(message: string) => void} lost Told when the microphone goes away.
 * @returns {Promise<Source>}
 */
export async function microphone(rate, heard, lost) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("Browsers give the microphone to pages of this machine, or with https, only. Open a file instead.");
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
  } catch (error) {
    const { name, message } = /** @type {DOMException} */ (error);
    throw new Error(REFUSED[name] ?? `The microphone cannot be used: ${message}`);
  }
  const [context, source] = listening(rate, stream);
  await context.audioWorklet.addModule(new URL("./capture-worklet.js", import.meta.url));
  const worklet = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, processorOptions: { rate } });
  let over = () => {};
  const isOver = new Promise((resolve) => (over = () => resolve(undefined)));
  worklet.port.onmessage = ({ data }) => (data.over ? over() : heard(data.pcm, data.level));
  source.connect(worklet);
  await context.resume();
  stream.getAudioTracks()[0].onended = () => lost("The microphone is gone.");
  return {
    async stop() {
      stream.getAudioTracks()[0].onended = null;
      worklet.port.postMessage("stop");
      await Promise.race([isOver, new Promise((resolve) => setTimeout(resolve, 500))]);
      for (const track of stream.getTracks()) track.stop();
      await context.close();
    },
  };
}

/**
 * Read a file as if it were spoken now, in real time.  Throws an Error, with a sentence, if the file is no sound.
 *
 * @param {File} file
 * @param {number} rate The samples a second of what `heard` gets.
 * @param {Heard} heard
 * @param {() => void} ended
 * @returns {Promise<Source>}
 */
export async function fileAsMicrophone(file, rate, heard, ended) {
  const sound = await readSound(file, rate);
  const resampler = new Resampler(sound.rate, rate);
  const parts = [resampler.more(sound.samples), resampler.rest()];
  const pcm = new Int16Array(parts[0].length + parts[1].length);
  pcm.set(toPcm16(parts[0]));
  pcm.set(toPcm16(parts[1]), parts[0].length);
  const size = Math.round(PIECE * rate);
  const begin = performance.now();
  let at = 0;
  const timer = setInterval(() => {
    const until = Math.min(pcm.length, Math.floor(((performance.now() - begin) / 1000) * rate));
    while (at < until && (until - at >= size || until === pcm.length)) {
      const piece = pcm.slice(at, Math.min(at + size, until));
      at += piece.length;
      const level = Math.sqrt(ofPcm16(piece).reduce((sum, x) => sum + x * x, 0) / piece.length);
      heard(piece, level);
    }
    if (at === pcm.length) {
      clearInterval(timer);
      ended();
    }
  }, 1000 * PIECE);
  return {
    async stop() {
      clearInterval(timer);
    },
  };
}

/** Plays sound that comes in pieces. */
export class Player {
  /**
   * @param {number} rate
   * @param {(at: number) => void} began Told when a sound begins after silence, by the clock of the page.
   */
  constructor(rate, began) {
    this.context = new AudioContext({ sampleRate: rate });
    this.gain = this.context.createGain();
    this.gain.connect(this.context.destination);
    this.buffered = 0;
    this.gaps = 0;
    /** @type {AudioWorkletNode | null} */
    this.worklet = null;
    this.began = began;
    this.loading = this.load();
  }

  async load() {
    await this.context.audioWorklet.addModule(new URL("./player-worklet.js", import.meta.url));
    this.worklet = new AudioWorkletNode(this.context, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.worklet.port.onmessage = ({ data }) => {
      if (data.began !== undefined) {
        const delay = data.began - this.context.currentTime + (this.context.outputLatency || 0);
        this.began(performance.now() + 1000 * delay);
      } else {
        this.buffered = data.buffered;
        this.gaps = data.gaps;
      }
    };
    this.worklet.connect(this.gain);
    await this.context.resume();
  }

  /** @param {Int16Array} pcm */
  async play(pcm) {
    await this.loading;
    const samples = ofPcm16(pcm);
    this.worklet?.port.postMessage({ samples }, [samples.buffer]);
  }

  /** Nothing more is to come: silence after this is no gap. */
  async end() {
    await this.loading;
    this.worklet?.port.postMessage({ end: true });
  }

  /** @param {number} share Between 0 and 1. */
  setVolume(share) {
    this.gain.gain.setTargetAtTime(share, this.context.currentTime, 0.02);
  }

  async close() {
    await this.loading.catch(() => {});
    if (this.context.state !== "closed") await this.context.close();
  }
}
