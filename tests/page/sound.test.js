import assert from "node:assert/strict";
import { test } from "node:test";

import { Resampler, ofPcm16, toPcm16 } from "../../serving/page/resample.js";
import { Ring } from "../../serving/page/ring.js";
import { readWave, waveFile } from "../../serving/page/wave.js";

const tone = (rate, hertz, seconds) =>
  Float32Array.from({ length: rate * seconds }, (_, n) => 0.5 * Math.sin((2 * Math.PI * hertz * n) / rate));

function resampled(samples, from, to, sizes) {
  const resampler = new Resampler(from, to);
  const parts = [];
  for (let at = 0, k = 0; at < samples.length; k += 1) {
    const size = sizes[k % sizes.length];
    parts.push(...resampler.more(samples.slice(at, at + size)));
    at += size;
  }
  return Float32Array.from([...parts, ...resampler.rest()]);
}

function level(samples) {
  const middle = samples.slice(samples.length / 4, (3 * samples.length) / 4);
  return Math.sqrt(middle.reduce((sum, x) => sum + x * x, 0) / middle.length);
}

for (const [from, to] of [[48000, 16000], [44100, 16000], [44100, 8000], [8000, 48000], [16000, 16000]]) {
  test(`sound of ${from} samples a second keeps its tone and its length at ${to}`, () => {
    const found = resampled(tone(from, 440, 1), from, to, [128]);
    assert.equal(found.length, to);
    const expected = tone(to, 440, 1);
    const error = found.map((x, n) => x - expected[n]);
    assert.ok(level(error) < 1e-3, `${level(error)}`);
  });

  test(`from ${from} to ${to}, the output does not depend on how the input is cut`, () => {
    const samples = tone(from, 1000, 0.2);
    const whole = resampled(samples, from, to, [samples.length]);
    for (const sizes of [[128], [1], [7, 300, 11]]) assert.deepEqual(resampled(samples, from, to, sizes), whole);
  });
}

test("what the lower rate cannot have is removed, and not folded back", () => {
  assert.ok(level(resampled(tone(48000, 11000, 1), 48000, 16000, [128])) < 1e-4);
});

test("16-bit PCM survives the way to samples and back", () => {
  const pcm = Int16Array.from({ length: 65536 }, (_, n) => n - 32768);
  assert.deepEqual(toPcm16(ofPcm16(pcm)), pcm);
  assert.deepEqual([...toPcm16(Float32Array.of(2, -2))], [32767, -32768]);
});

test("a WAV file is read as it was written", async () => {
  const pcm = Int16Array.from({ length: 1000 }, (_, n) => 30 * n - 15000);
  const found = readWave(await waveFile(pcm, 8000).arrayBuffer());
  assert.equal(found.rate, 8000);
  assert.deepEqual(toPcm16(found.samples), pcm);
});

test("the channels of a WAV file are mixed", async () => {
  const file = await waveFile(Int16Array.of(100, 300, -200, 0), 8000).arrayBuffer();
  new DataView(file).setUint16(22, 2, true);
  assert.deepEqual([...toPcm16(readWave(file).samples)], [200, -100]);
});

test("a WAV file that was cut off gives what there is, and another file nothing", async () => {
  const file = await waveFile(new Int16Array(1000), 8000).arrayBuffer();
  assert.equal(readWave(file.slice(0, 44 + 1001)).samples.length, 500);
  assert.equal(readWave(new ArrayBuffer(100)), null);
  assert.equal(readWave(new ArrayBuffer(3)), null);
});

test("a ring gives back what was put in, in order, however much that is", () => {
  const ring = new Ring(4);
  let [next, expected] = [0, 0];
  for (let k = 0; k < 500; k += 1) {
    const size = (k * 7) % 13;
    ring.push(Float32Array.from({ length: size }, () => next++));
    const output = new Float32Array((k * 5) % 11);
    const count = ring.take(output);
    for (const x of output.subarray(0, count)) assert.equal(x, expected++);
    for (const x of output.subarray(count)) assert.equal(x, 0);
  }
  assert.equal(ring.length, next - expected);
});
