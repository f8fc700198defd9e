/** Trees for the tests: drawn from a seed, so that a failure can be repeated. */

export const COLUMNS = [
  "path", "kind", "label", "parent", "state", "why", "call", "turns", "tokens", "cost_usd",
  "began_ms", "ended_ms", "failures", "budget",
];
const STATES = ["active", "calling", "waiting for model", "waiting for approval", "completed", "failed", "expired"];

/** @param {number} seed */
export function makeDice(seed) {
  let state = seed;
  return (most) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * most);
  };
}

export function makeRow(number, parent, given = {}) {
  const row = {
    path: `s${number}`, kind: "leaf", label: `Session ${number}`, parent, state: "completed", why: "", call: "",
    turns: 1, tokens: 10, cost_usd: 0.001, began_ms: 1000, ended_ms: 2000, failures: 0, budget: null, ...given,
  };
  return COLUMNS.map((name) => row[name]);
}

export function drawRow(dice, number, parent) {
  return makeRow(number, parent, {
    kind: dice(2) ? "leaf" : "branch", label: `Read source ${dice(4)}`, state: STATES[dice(STATES.length)],
    tokens: dice(100_000), cost_usd: dice(5) ? dice(1_000_000) / 1e6 : null, failures: dice(3),
  });
}

export function makeSnapshot(rows, given = {}) {
  return {
    kind: "snapshot", version: 1, feed: "f", revision: 1, seq: 1, at_ms: 1000,
    tree: { id: "t", purpose: "p", workspace: "w", model: "m", created_ms: 0, is_over: false, is_live: true,
      is_whole: true },
    can: [], totals: {}, columns: COLUMNS, rows, approvals: [], questions: [], ...given,
  };
}

export function makeDelta(from, rows, given = {}) {
  return {
    kind: "delta", feed: "f", from, revision: from + 1, seq: from + 1, at_ms: 1000, is_over: false, is_live: true,
    totals: {}, rows, ...given,
  };
}
