// @ts-check
/** When things happen at the server, by the clock of this page. */

const KEPT = 60_000; // milliseconds for which a measurement counts: clocks drift

/** @typedef {{at: number, offset: number, roundTrip: number}} Measurement */

/**
 * The offset of a server's clock, measured by messages that it answers at once.
 *
 * The answer came from between the sending and the receiving.  The measurement with the smallest round trip errs the
 * least, by at most half of that round trip.  All times of the page are in milliseconds, those of the server in seconds.
 */
export class Clock {
  constructor() {
    /** @type {Measurement[]} */
    this.measurements = [];
  }

  /**
   * Learn that a message sent at one time was answered at the server's `serverAt`, and the answer came in at another.
   *
   * @param {number} sentAt
   * @param {number} serverAt
   * @param {number} receivedAt
   */
  add(sentAt, serverAt, receivedAt) {
    const offset = (sentAt + receivedAt) / 2 - 1000 * serverAt;
    this.measurements.push({ at: receivedAt, offset, roundTrip: receivedAt - sentAt });
    this.measurements = this.measurements.filter((own) => receivedAt - own.at <= KEPT);
  }

  /** @returns {Measurement | null} The measurement with the smallest round trip. */
  get best() {
    return this.measurements.reduce(
      (best, own) => (best === null || own.roundTrip < best.roundTrip ? own : best),
      /** @type {Measurement | null} */ (null),
    );
  }

  /**
   * Return a time of the server by the clock of this page, null if nothing was measured yet.
   *
   * @param {number} serverAt
   * @returns {number | null}
   */
  local(serverAt) {
    return this.best === null ? null : 1000 * serverAt + this.best.offset;
  }
}
