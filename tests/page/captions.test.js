import assert from "node:assert/strict";
import { test } from "node:test";

import { Captions, joined, timestamp, under, wordsIn } from "../../serving/page/captions.js";

const step = (stage, rest) => ({ stage, taken: 0, arrived: 0, began: 0, ended: 0, together: 1, ...rest });
const word = (text, line, rest = {}) => ({ text, line, ...rest });

test("words of scripts without spaces are single characters", () => {
  assert.deepEqual(wordsIn("red  blue 红色。x"), ["red", "blue", "红", "色", "。", "x"]);
  assert.equal(joined(["红", "色", "red", "blue", "。"]), "红色red blue。");
});

test("each word of a translation stands under the last word that had been read", () => {
  const captions = new Captions([0, 1], false);
  captions.add(step(0, { words: ["a", "b", "c"].map((text) => word(text, 0)) }));
  captions.add(step(1, { words: [word("x", 0, { after: 1 }), word("y", 0, { after: 3 }), word("z", 0, { after: 3 })] }));
  assert.deepEqual(under(captions.lines[0], 0), ["", "x", "", "y z"]);
});

test("a translation that comes before its words are shown waits under the last of them", () => {
  const captions = new Captions([0, 1], false);
  captions.add(step(0, { words: [word("a", 0)] }));
  captions.add(step(1, { words: [word("x", 0, { after: 2 })] }));
  assert.deepEqual(under(captions.lines[0], 0), ["", "x"]);
});

test("what is final never changes, whatever is tentative", () => {
  const captions = new Captions([0], false);
  let before = [];
  for (const [words, tentative] of [[["a"], "bl"], [[], "blu"], [["blue"], ""], [["c"], "d"]]) {
    captions.add(step(0, { words: words.map((text) => word(text, 0)), tentative }));
    const now = captions.lines[0].words.map(({ text }) => text);
    assert.deepEqual(now.slice(0, before.length), before);
    assert.equal(captions.lines[0].tentative, tentative);
    before = now;
  }
});

test("tentative text stands in the line that the recognizer is in", () => {
  const captions = new Captions([0], false);
  captions.add(step(0, { text: "a\n", words: [word("a", 0)], tentative: "" }));
  captions.add(step(0, { tentative: "b", words: [] }));
  assert.equal(captions.lines[1].tentative, "b");
  assert.equal(captions.lines[0].tentative, "");
});

test("a resumed session goes on in the lines that each stage was in", () => {
  const captions = new Captions([0, 1], false);
  captions.add(step(0, { text: "a\nb", words: [word("a", 0), word("b", 1)] }));
  captions.add(step(1, { text: "x", words: [word("x", 0, { after: 1 })] }));
  captions.resume();
  captions.add(step(0, { text: " c", words: [word("c", 0)] }));
  captions.add(step(1, { text: " y\n", words: [word("y", 0, { after: 1 })] }));
  assert.deepEqual(captions.transcript, ["a", "b c"]);
  assert.deepEqual(captions.lines[0].translations[0].map(({ text }) => text), ["x", "y"]);
});

test("a session that begins anew begins new lines", () => {
  const captions = new Captions([0], false);
  captions.add(step(0, { text: "a", words: [word("a", 0, { start: 0, end: 1 })], tentative: "b" }));
  assert.deepEqual([...captions.restart(0)], [0]);
  assert.equal(captions.lines[0].tentative, "");
  captions.add(step(0, { text: "b", words: [word("b", 0, { start: 0.5, end: 1 })] }), 10);
  assert.deepEqual(captions.transcript, ["a", "b"]);
  assert.equal(captions.lines[1].words[0].start, 10.5);
});

test("typed lines are the words that translations stand under", () => {
  const captions = new Captions([0], true);
  captions.type("red blue\n");
  captions.type("green\n");
  captions.add(step(0, { words: [word("rot", 0, { after: 1 }), word("grün", 1, { after: 1 })] }));
  assert.deepEqual(captions.transcript, ["red blue", "green"]);
  assert.deepEqual(under(captions.lines[1], 0), ["", "grün"]);
});

test("of typed lines, those that another session is given get its translations", () => {
  const captions = new Captions([0], true);
  captions.type("red\n");
  captions.add(step(0, { text: "rot\n", words: [word("rot", 0, { after: 1 })] }));
  captions.type("blue\n");
  captions.restart(4);
  captions.add(step(0, { text: "blau\n", words: [word("blau", 0, { after: 1 })] }));
  assert.deepEqual(captions.lines.map((line) => under(line, 0)), [["", "rot"], ["", "blau"]]);
});

test("subtitles have a cue for each line, with its translation", () => {
  const captions = new Captions([0, 1], false);
  captions.add(step(0, { words: [word("a<b", 0, { start: 1, end: 1.5 }), word("c", 0, { start: 2, end: 3661.25 })] }));
  captions.add(step(1, { words: [word("x", 0, { after: 1 })] }));
  assert.equal(captions.subtitles, "WEBVTT\n\n00:00:01.000 --> 01:01:01.250\na&lt;b c\nx\n");
  assert.equal(timestamp(59.9999), "00:01:00.000");
});
