import assert from "node:assert/strict";
import { test } from "node:test";

import { python, snippets } from "../../serving/page/snippets.js";

test("values are written as Python writes them", () => {
  assert.equal(python({ a: [true, null, 'x"y', 1.5], b: false }), '{"a": [True, None, "x\\"y", 1.5], "b": False}');
});

test("a quote in a text stays a quote in the shell", () => {
  const { curl } = snippets("http://h", { path: "/p", body: { inputs: ["it's"] } }, false);
  assert.equal(curl, `curl http://h/p --json '{"inputs":["it'\\''s"]}'`);
});

test("a key is taken from the environment and not shown", () => {
  const found = snippets("http://h", { path: "/p", body: {}, openai: ["print(client)"] }, true);
  assert.deepEqual(Object.keys(found), ["curl", "Python", "OpenAI client"]);
  assert.match(found.curl, /\$KEY/);
  assert.match(found.Python, /os\.environ\['KEY'\]/);
  assert.match(found["OpenAI client"], /os\.environ\["KEY"\]/);
});
