// @ts-check
/** Quality against latency of a model that translates, at the distances that its run has measured. */

/** @typedef {import("./app.js").Curve} Curve */

/**
 * Return the place on a curve at a distance, on the line between its neighbors if it was not measured itself.
 *
 * @param {Curve} curve
 * @param {number | null} waitK null for whole sentences.
 * @returns {{x: number, y: number}}
 */
export function pointAt({ points }, waitK) {
  const numbers = points.map(({ wait_k, lagging, score }) => ({ k: wait_k ?? Infinity, x: lagging, y: score }));
  const k = waitK ?? Infinity;
  const after = numbers.find((point) => point.k >= k) ?? numbers[numbers.length - 1];
  const before = numbers.filter((point) => point.k <= k).at(-1) ?? numbers[0];
  const way = after.k === before.k || after.k === Infinity ? 0 : (k - before.k) / (after.k - before.k);
  return { x: before.x + way * (after.x - before.x), y: before.y + way * (after.y - before.y) };
}
