// @ts-check
/** Rows to try a model with, which the server's configuration names. */

import { ask, askJson } from "./api.js";

/** @typedef {import("./app.js").Model} Model */
/** @typedef {{cells: Record<string, any>, sound: boolean}} Example */

/** @type {Map<string, Promise<Example[]>>} */
const known = new Map();

/**
 * Return a model's examples.
 *
 * @param {Model} model
 * @returns {Promise<Example[]>}
 */
export function examplesOf(model) {
  if (!model.examples) return Promise.resolve([]);
  const version = `${model.name} ${model.loaded_at}`;
  const found =
    known.get(version) ??
    askJson(`/models/${encodeURIComponent(model.name)}/examples`).then(
      ({ examples }) => examples,
      () => {
        known.delete(version); // a key may be missing as yet
        return [];
      },
    );
  known.set(version, found);
  return found;
}

/**
 * Return the sound of an example as a file.
 *
 * @param {Model} model
 * @param {number} number
 */
export async function soundOf(model, number) {
  const reply = await ask(`/models/${encodeURIComponent(model.name)}/examples/${number}`);
  return new File([await reply.blob()], `example ${number + 1}`, { type: "audio/wav" });
}

/**
 * Return what an example is called in a list.
 *
 * @param {Example} example
 * @param {number} number
 */
export function titleOf({ cells }, number) {
  const text = Object.values(cells).find((cell) => typeof cell === "string" && cell.trim());
  return text === undefined ? `Example ${number + 1}` : text.length > 60 ? `${text.slice(0, 59)}…` : text;
}
