import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { InputLog, Session } from "../../serving/page/session.js";

const samples = (first, last) => Int16Array.from({ length: last - first }, (_, n) => first + n);
const numbers = (pieces) => pieces.flatMap((piece) => [...piece]);

test("everything from a place on can be sent again", () => {
  const log = new InputLog();
  for (const [first, last] of [[0, 10], [10, 25], [25, 26]]) log.push(samples(first, last));
  for (let place = 0; place <= 26; place += 1) {
    assert.deepEqual(numbers(log.after(place)), [...samples(place, 26)]);
  }
});

test("what is not needed any more is forgotten, piece by piece", () => {
  const log = new InputLog();
  for (const [first, last] of [[0, 10], [10, 25], [25, 26]]) log.push(samples(first, last));
  log.forget(24);
  assert.deepEqual(numbers(log.after(0)), [...samples(10, 26)]);
  log.forget(26);
  assert.deepEqual(log.after(0), []);
});

test("text is counted in characters of Unicode, as the server counts it", () => {
  const log = new InputLog();
  log.push("a😀b");
  log.push("c");
  assert.equal(log.end, 4);
  assert.deepEqual(log.after(2), ["b", "c"]);
});

/** The other end of a connection, which does what a test says. */
class Socket {
  static OPEN = 1;
  /** @type {Socket[]} */
  static all = [];

  constructor() {
    Object.assign(this, { readyState: 0, bufferedAmount: 0, sent: [], isClosed: false });
    Socket.all.push(this);
  }

  send(data) {
    this.sent.push(typeof data === "string" ? JSON.parse(data) : data);
  }

  close() {
    this.isClosed = true;
  }

  open() {
    this.readyState = Socket.OPEN;
    this.onopen();
  }

  say(message) {
    this.onmessage({ data: JSON.stringify(message) });
  }

  drop(code) {
    this.readyState = 3;
    this.onclose({ code });
  }

  ready(received = 0, takes = { kind: "sound", sample_rate: 100 }) {
    this.open();
    this.say({ type: "ready", received, takes, gives: { kind: "text" }, settings: {}, stages: [] });
  }

  get sound() {
    return numbers(this.sent.filter((own) => own instanceof Int16Array));
  }
}

/** A session whose clock and whose server are the test's. */
function begin(context) {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  context.after(() => mock.timers.reset());
  Socket.all = [];
  Object.assign(globalThis, {
    WebSocket: Socket,
    location: { protocol: "http:", host: "here" },
    sessionStorage: { getItem: () => null },
    fetch: () => Promise.reject(new Error("nobody answers")),
  });
  const heard = [];
  const session = new Session("model", {
    ready: (_, again) => heard.push(`ready ${again}`.trim()),
    state: (state, message) => heard.push(message || state),
    slow: (seconds) => heard.push(seconds),
  });
  Socket.all[0].ready();
  return { session, heard, last: () => Socket.all.at(-1) };
}

const step = (taken, words = []) => ({ type: "step", stage: 0, taken, words });
const word = (end) => ({ text: "red", line: 0, start: end - 0.1, end });
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("a session that was kept goes on with what the server has not heard", async (context) => {
  const { session, heard, last } = begin(context);
  session.put(samples(0, 50));
  last().say(step(40));
  last().say({ type: "state", token: "T", received: 45 });
  last().drop(1001);
  session.put(samples(50, 70));
  mock.timers.tick(250);
  last().ready(45);
  assert.equal(last().sent[0].resume, "T");
  assert.deepEqual(last().sound, [...samples(45, 70)]);
  assert.equal(heard.at(-1), "ready resumed");
});

test("a session that was forgotten begins anew after the last final word", async (context) => {
  const { session, heard, last } = begin(context);
  session.put(samples(0, 50));
  last().say(step(30, [word(0.2)]));
  last().say(step(45));
  last().drop(1006);
  mock.timers.tick(250);
  last().ready();
  assert.equal(last().sent[0].resume, undefined);
  assert.deepEqual(last().sound, [...samples(20, 50)]);
  assert.equal(session.base, 20);
  assert.equal(heard.at(-1), "ready anew");
  // the words of the new session count from there
  last().say(step(20, [word(0.15)]));
  last().drop(1006);
  mock.timers.tick(250);
  last().ready();
  assert.deepEqual(last().sound, [...samples(35, 50)]);
});

test("of sound without words, ten seconds are kept", (context) => {
  const { session, last } = begin(context);
  for (let at = 0; at < 3000; at += 10) session.put(samples(at, at + 10));
  last().say(step(2990));
  last().drop(1006);
  mock.timers.tick(250);
  last().ready();
  assert.deepEqual(last().sound, [...samples(1990, 3000)]);
});

test("where others were faster after a restart, the page tries on with its token", async (context) => {
  const { heard, last } = begin(context);
  last().say({ type: "state", token: "T", received: 0 });
  last().drop(1001);
  mock.timers.tick(250);
  last().open();
  last().say({ type: "error", kind: "overloaded", message: "the server is full" });
  last().drop(1013);
  assert.match(heard.at(-1), /^The server is full\. /);
  mock.timers.tick(500);
  last().ready();
  assert.equal(last().sent[0].resume, "T");
});

test("a token that nobody knows begins a session anew", (context) => {
  const { heard, last } = begin(context);
  last().say({ type: "state", token: "T", received: 0 });
  last().drop(1001);
  mock.timers.tick(250);
  last().open();
  last().say({ type: "error", kind: "invalid", message: "this token is of no session" });
  last().drop(1008);
  mock.timers.tick(500);
  last().ready();
  assert.equal(heard.at(-1), "ready anew");
});

test("a connection on which nothing comes any more is left for another one", (context) => {
  const { session, heard, last } = begin(context);
  const lost = last();
  session.put(samples(0, 50));
  mock.timers.tick(12_000);
  assert.equal(lost.isClosed, true);
  assert.match(heard.at(-1), /^The connection is interrupted/);
  mock.timers.tick(250);
  assert.notEqual(last(), lost);
  last().ready();
  assert.deepEqual(last().sound, [...samples(0, 50)]);
});

test("a server that never comes back is told", async (context) => {
  const { heard, last } = begin(context);
  last().drop(1006);
  for (let n = 0; n < 11; n += 1) {
    mock.timers.tick(8000);
    last().drop(1006);
    await settled(); // whether a key is missing is asked first
  }
  assert.match(heard.at(-1), /has not answered/);
});

test("sound that waits for a slow network is told, and also when it does no more", (context) => {
  const { session, heard, last } = begin(context);
  const put = (...waiting) => {
    for (const seconds of waiting) {
      last().bufferedAmount = 200 * seconds;
      session.put(samples(0, 1));
    }
    return heard.splice(0);
  };
  context.mock.method(performance, "now", () => 0);
  assert.deepEqual(put(0, 1, 2.5, 1.5, 0.4, 0.4).slice(2), [2.5, 1.5, 0]);
  last().drop(1006);
  mock.timers.tick(250);
  last().ready();
  // what was said meanwhile is sent at once, and may take its time
  assert.deepEqual(put(8, 7, 5, 6, 7.5, 0.4).slice(-2), [7.5, 0]);
});

test("sound is late where the server answers late", (context) => {
  let now = 0;
  context.mock.method(performance, "now", () => now);
  const { session, heard, last } = begin(context);
  const put = (time) => {
    now = time;
    session.put(samples(0, 1));
    return heard.splice(0).at(-1);
  };
  put(100);
  assert.equal(put(1900), undefined);
  assert.equal(put(2500), 2.5);
  last().say({ type: "pong", time: 0, at: 1 });
  assert.equal(put(2600), 0);
});
