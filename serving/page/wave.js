// @ts-check
/** WAV files: written exactly, and read exactly if they hold 16-bit PCM; browsers decode everything else. */

import { ofPcm16 } from "./resample.js";

/** @typedef {{rate: number, samples: Float32Array}} Sound Samples of one channel, between -1 and 1. */

/**
 * Return a WAV file of one channel of 16-bit PCM.
 *
 * @param {Int16Array} pcm
 * @param {number} rate
 * @returns {Blob}
 */
export function waveFile(pcm, rate) {
  const head = new DataView(new ArrayBuffer(44));
  const text = (/** @type {number} */ at, /** @type {string} */ word) =>
    [...word].forEach((letter, n) => head.setUint8(at + n, letter.charCodeAt(0)));
  text(0, "RIFF");
  head.setUint32(4, 36 + 2 * pcm.length, true);
  text(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, rate, true);
  head.setUint32(28, 2 * rate, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  text(36, "data");
  head.setUint32(40, 2 * pcm.length, true);
  return new Blob([head, /** @type {BlobPart} */ (pcm)], { type: "audio/wav" });
}

/**
 * Return the sound of a WAV file of 16-bit PCM, its channels mixed; null for any other file.
 *
 * @param {ArrayBuffer} file
 * @returns {Sound | null}
 */
export function readWave(file) {
  const view = new DataView(file);
  const word = (/** @type {number} */ at) =>
    String.fromCharCode(...[0, 1, 2, 3].map((n) => view.getUint8(at + n)));
  if (file.byteLength < 44 || word(0) !== "RIFF" || word(8) !== "WAVE") return null;
  let channels = 0;
  let rate = 0;
  for (let at = 12; at + 8 <= file.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    if (word(at) === "fmt " && at + 24 <= file.byteLength) {
      if (view.getUint16(at + 8, true) !== 1 || view.getUint16(at + 22, true) !== 16) return null;
      channels = view.getUint16(at + 10, true);
      rate = view.getUint32(at + 12, true);
    } else if (word(at) === "data" && channels && rate) {
      const bytes = Math.min(size, file.byteLength - at - 8); // less if the file was cut, or its writer streamed it
      const frames = Math.floor(bytes / (2 * channels));
      const pcm = new Int16Array(file.slice(at + 8, at + 8 + 2 * channels * frames));
      return { rate, samples: channels === 1 ? ofPcm16(pcm) : mixed(ofPcm16(pcm), channels) };
    }
    at += 8 + size + (size % 2);
  }
  return null;
}

/**
 * @param {Float32Array} interleaved
 * @param {number} channels
 */
function mixed(interleaved, channels) {
  return Float32Array.from({ length: interleaved.length / channels }, (_, n) => {
    let sum = 0;
    for (let channel = 0; channel < channels; channel += 1) sum += interleaved[channels * n + channel];
    return sum / channels;
  });
}

/**
 * Return the sound of a file of any kind that the browser knows.  Throws an Error, with a sentence, for others.
 *
 * @param {File} file
 * @param {number} rate The samples a second of whatever has to be decoded; a WAV file of PCM keeps its own rate.
 * @returns {Promise<Sound>}
 */
export async function readSound(file, rate) {
  const content = await file.arrayBuffer();
  const wave = readWave(content);
  if (wave !== null) return wave;
  let decoded;
  try {
    decoded = await new OfflineAudioContext(1, 1, rate).decodeAudioData(content);
  } catch {
    throw new Error(`${file.name}: this browser knows no such format of sound. A WAV or MP3 file will do.`);
  }
  const samples = new Float32Array(decoded.length);
  for (let channel = 0; channel < decoded.numberOfChannels; channel += 1) {
    decoded.getChannelData(channel).forEach((x, n) => (samples[n] += x / decoded.numberOfChannels));
  }
  return { rate: decoded.sampleRate, samples };
}
