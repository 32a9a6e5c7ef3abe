import assert from "node:assert/strict";
import { test } from "node:test";

import { Clock } from "../../serving/page/clock.js";
import { CaptureClock, Latency } from "../../serving/page/latency.js";
import { pointAt } from "../../serving/page/curve.js";
import { ceiling, short } from "../../serving/page/plot.js";
import { Change, Reading, parse } from "../../serving/page/prometheus.js";

test("the clock is compared by the message with the smallest round trip", () => {
  const clock = new Clock();
  assert.equal(clock.local(5), null);
  clock.add(1000, 5, 1400); // the way back took long
  clock.add(2000, 5.815, 2010);
  clock.add(3000, 6.9, 3300);
  assert.equal(clock.best.roundTrip, 10);
  assert.ok(Math.abs(clock.local(5.815) - 2005) < 1e-6);
});

test("an old measurement is forgotten", () => {
  const clock = new Clock();
  clock.add(0, 0, 2);
  clock.add(100_000, 100, 100_050);
  assert.equal(clock.best.roundTrip, 50);
});

test("samples were captured when their piece came, less what pieces wait at least", () => {
  const capture = new CaptureClock(1000);
  for (const [end, now] of [[100, 230], [200, 305], [300, 460]]) capture.add(end, now);
  assert.equal(capture.at(200), 305);
  assert.equal(capture.at(300), 405);
});

test("a summary is of the last values", () => {
  const latency = new Latency();
  assert.equal(latency.summary("queue"), null);
  for (let n = 0; n < 150; n += 1) latency.add("queue", n);
  assert.deepEqual(latency.summary("queue"), { median: 124, high: 147 });
});

test("metrics are read with their labels, and comments are not", () => {
  const text = '# HELP a b\na{work="x/\\"y\\"",le="+Inf"} 3\nb 1.5e3\n\n';
  assert.deepEqual(parse(text), [
    { name: "a", labels: { work: 'x/"y"', le: "+Inf" }, value: 3 },
    { name: "b", labels: {}, value: 1500 },
  ]);
});

test("rates, means and quantiles are those between two readings", () => {
  const histogram = (counts, sum) =>
    counts.map(([le, n]) => `h_bucket{le="${le}"} ${n}`).join("\n") + `\nh_sum ${sum}\nh_count ${counts.at(-1)[1]}\nc_total ${sum}\n`;
  const change = new Change(
    new Reading(histogram([["1", 5], ["2", 5], ["+Inf", 5]], 4), 0),
    new Reading(histogram([["1", 7], ["2", 15], ["+Inf", 15]], 20), 2000),
  );
  assert.equal(change.rate("c_total"), 8);
  assert.equal(change.mean("h"), 1.6);
  assert.equal(change.quantile("h", 0.6), 1.5);
  assert.equal(change.mean("nothing"), null);
});

test("a server that was started again counts from 0", () => {
  const change = new Change(new Reading("c_total 90\n", 0), new Reading("c_total 30\n", 1000));
  assert.equal(change.rate("c_total"), 30);
});

test("numbers and axes are round", () => {
  assert.deepEqual([0.05, 3, 12.34, 123.4, 56_789].map(short), ["0.05", "3", "12.3", "123", "57k"]);
  assert.deepEqual([0, 0.3, 1, 7, 21, 99].map(ceiling), [1, 0.5, 1, 10, 50, 100]);
});

test("a distance that was not measured is between its neighbors", () => {
  const points = [[1, 1, 10], [3, 2, 20], [5, 4, 26], [null, 9, 30]].map(([wait_k, lagging, score]) => ({ wait_k, lagging, score }));
  const at = (k) => Object.values(pointAt({ metric: "bleu", points }, k));
  assert.deepEqual(at(1), [1, 10]);
  assert.deepEqual(at(2), [1.5, 15]);
  assert.deepEqual(at(4), [3, 23]);
  assert.deepEqual(at(7), [4, 26]); // how far away whole sentences are, nobody knows
  assert.deepEqual(at(null), [9, 30]);
});
