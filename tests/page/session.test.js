import assert from "node:assert/strict";
import { test } from "node:test";

import { InputLog } from "../../serving/page/session.js";

const samples = (first, last) => Int16Array.from({ length: last - first }, (_, n) => first + n);
const numbers = (pieces) => pieces.flatMap((piece) => [...piece]);

test("everything from a place on can be sent again", () => {
  const log = new InputLog();
  for (const [first, last] of [[0, 10], [10, 25], [25, 26]]) log.push(samples(first, last));
  for (let place = 0; place <= 26; place += 1) {
    assert.deepEqual(numbers(log.after(place)), [...samples(place, 26)]);
  }
});

test("what the server has taken is forgotten, piece by piece", () => {
  const log = new InputLog();
  for (const [first, last] of [[0, 10], [10, 25], [25, 26]]) log.push(samples(first, last));
  log.forget(24);
  assert.equal(log.begin, 10);
  assert.deepEqual(numbers(log.after(24)), [24, 25]);
  log.forget(26);
  assert.equal(log.begin, 26);
  assert.deepEqual(log.after(26), []);
});

test("text is counted in characters of Unicode, as the server counts it", () => {
  const log = new InputLog();
  log.push("a😀b");
  log.push("c");
  assert.equal(log.end, 4);
  assert.deepEqual(log.after(2), ["b", "c"]);
});
