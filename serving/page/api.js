// @ts-check
/** Requests to this page's own server. */

const KEY = "ernie.key";

/** What the server refuses: `kind` is its word for programs, and the message its sentence. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} kind
   * @param {string} sentence
   */
  constructor(status, kind, sentence) {
    super(sentence);
    this.status = status;
    this.kind = kind;
  }
}

/** @returns {string} The key of whoever uses this page, "" if there is none; it is forgotten with the tab. */
export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

/** @param {string} given */
export function setKey(given) {
  if (given) sessionStorage.setItem(KEY, given);
  else sessionStorage.removeItem(KEY);
}

/** @returns {string[]} The subprotocols by which a WebSocket shows the key. */
export function subprotocols() {
  if (!key()) return ["ernie"];
  const encoded = btoa(key()).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return ["ernie", `ernie.key.${encoded}`];
}

/**
 * Ask the server.  Throws a Refusal for any answer but a good one, and for a server that does not answer.
 *
 * @param {string} path
 * @param {{body?: unknown, form?: FormData, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
export async function ask(path, { body, form, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = key() ? { authorization: `Bearer ${key()}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const content = form ?? (body === undefined ? undefined : JSON.stringify(body));
  let response;
  try {
    response = await fetch(path, { method: content === undefined ? "GET" : "POST", headers, body: content, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, "unreachable", "The server does not answer. Is it running?");
  }
  if (response.ok) return response;
  const found = await response.json().catch(() => ({}));
  const { kind = "", type = "", message = response.statusText } = found.error ?? {};
  throw new Refusal(response.status, kind || type, sentence(message));
}

/**
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function askJson(path, body) {
  return (await ask(path, { body })).json();
}

/**
 * Return a message of the server as a sentence.
 *
 * @param {string} message
 */
export function sentence(message) {
  const text = message.trim();
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? "" : "."}` : "";
}
