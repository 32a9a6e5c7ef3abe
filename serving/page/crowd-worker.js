// @ts-check
/** Runs beside the page: many sessions at once, each of which speaks or types as a person would. */

const PIECE = 0.1; // seconds of sound in a message
const WORDS_A_SECOND = 2.5;
const PAUSE = 1; // seconds between two texts or sounds

/**
 * @typedef {{url: string, protocols: string[], sound: Int16Array | null, lines: string[]}} Plan
 * @typedef {{socket: WebSocket, stop: boolean}} Member
 */

/** @type {Member[]} */
let crowd = [];
/** @type {Map<string, number>} */
const refused = new Map();
let wanted = 0;

/** @param {number} seconds */
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/**
 * @param {Member} member
 * @param {Plan} plan
 * @param {{kind: string, sample_rate?: number}} takes
 */
async function speak(member, plan, takes) {
  const { socket } = member;
  await sleep(Math.random() * 2); // people do not begin together
  while (!member.stop && socket.readyState === WebSocket.OPEN) {
    if (takes.kind === "sound") {
      const size = Math.round(PIECE * (takes.sample_rate ?? 16_000));
      const sound = plan.sound ?? babble(takes.sample_rate ?? 16_000);
      const begin = performance.now();
      for (let at = 0; at < sound.length && !member.stop && socket.readyState === WebSocket.OPEN; at += size) {
        if (socket.bufferedAmount < 10 * size) socket.send(sound.slice(at, at + size));
        await sleep(Math.max(0, (at + size) / size * PIECE - (performance.now() - begin) / 1000));
      }
    } else {
      const line = plan.lines[Math.floor(Math.random() * plan.lines.length)];
      for (const word of `${line}\n`.match(/\s*\S+\n?/g) ?? []) {
        if (member.stop || socket.readyState !== WebSocket.OPEN) break;
        socket.send(JSON.stringify({ type: "text", text: word }));
        await sleep(1 / WORDS_A_SECOND);
      }
    }
    await sleep(PAUSE);
  }
}

/**
 * Return ten seconds of sound that rises and falls about four times a second, as syllables do.
 *
 * @param {number} rate
 */
function babble(rate) {
  let phase = 0;
  return Int16Array.from({ length: 10 * rate }, (_, n) => {
    const t = n / rate;
    phase += (2 * Math.PI * (120 + 30 * Math.sin(2 * Math.PI * 0.7 * t))) / rate;
    const voice = [1, 2, 3, 4, 5, 8, 12].reduce((sum, k) => sum + Math.sin(k * phase) / k, 0);
    return Math.round(4000 * voice * Math.max(0, Math.sin(2 * Math.PI * 4 * t)) * (t % 3 < 2 ? 1 : 0));
  });
}

/** @param {Plan} plan */
function join(plan) {
  const socket = new WebSocket(plan.url, plan.protocols);
  const member = { socket, stop: false };
  crowd.push(member);
  socket.onopen = () => socket.send(JSON.stringify({ type: "start" }));
  socket.onmessage = ({ data }) => {
    if (typeof data !== "string") return;
    const message = JSON.parse(data);
    if (message.type === "ready") void speak(member, plan, message.takes);
    if (message.type === "error") refused.set(message.message, (refused.get(message.message) ?? 0) + 1);
  };
  socket.onclose = () => {
    member.stop = true;
    crowd = crowd.filter((own) => own !== member);
    report();
  };
}

function report() {
  const open = crowd.filter(({ socket }) => socket.readyState === WebSocket.OPEN).length;
  postMessage({ open, wanted, refused: [...refused] });
}

onmessage = ({ data }) => {
  if (data.join) {
    wanted += data.join;
    for (let n = 0; n < data.join; n += 1) join(data.plan);
  }
  if (data.leave) {
    wanted = 0;
    refused.clear();
    for (const member of crowd) {
      member.stop = true;
      member.socket.close();
    }
  }
};

setInterval(report, 500);
