// An open loop of k6, for benchmarks/serving_load.py: RATE requests a second to URL for SECONDS, a line of BODIES each.

import http from "k6/http";
import { SharedArray } from "k6/data";

const bodies = new SharedArray("bodies", () => open(__ENV.BODIES).split("\n").filter((line) => line));
const headers = { "Content-Type": "application/json", "x-timeout": "2" };
let count = 0;

export const options = {
  discardResponseBodies: true,
  summaryTrendStats: ["p(50)", "p(90)", "p(99)", "count"],
  scenarios: {
    open: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE),
      timeUnit: "1s",
      duration: `${__ENV.SECONDS}s`,
      preAllocatedVUs: 100,
    },
  },
};

export default function () {
  http.post(__ENV.URL, bodies[(__VU * 7919 + count++) % bodies.length], { headers });
}
