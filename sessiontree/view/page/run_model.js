/**
 * The model of a benchmark run as a viewer holds it: rows of samples, kept up to date by deltas; which of them a
 * filter shows, in which order; and what changed between two runs. It is pure: it draws nothing and asks nobody.
 */

/**
 * @typedef {"id"|"epoch"|"position"|"outcome"|"status"|"kind"|"why"|"values"|"passes"|"wall_ms"|"cost_usd"
 *   |"tokens"|"sessions"|"attempts"|"tree"|"input"|"answer"|"tags"|"metadata"} SampleColumn
 * @typedef {{value: number|null, low: number|null, high: number|null}} Rate
 * @typedef {{number: number, dir: string, suite: string, model: string, settings: [string, string][],
 *   tags: string[], release: string, began_ms: number|null, ended_ms: number|null, is_live: boolean, worked_ms: number,
 *   per_s: number, left_s: number|null, counts: Record<string, number>, total: number, scored: number,
 *   coverage: number|null, rate: Rate, interval: string, kinds: [string, string, number, string][],
 *   scores: [string, number, number, number][], cost_usd: number, tokens: number}} RunHeadFacts
 * @typedef {{kind: "snapshot", feed: string, revision: number, head: RunHeadFacts, columns: string[],
 *   rows: any[][]}} RunSnapshot
 * @typedef {{kind: "delta", feed: string, from: number, revision: number, head: RunHeadFacts,
 *   rows: [number, any[]][]}} RunDelta
 * @typedef {RunSnapshot|RunDelta|{kind: "status", status: string}} RunNews
 * @typedef {{open(onNews: (news: any) => void): Promise<any>, ask(verb: string, given: object): Promise<any>,
 *   close(): void}} RunSource
 */

export const OUTCOMES = ["passed", "not passed", "infrastructure", "undecided", "running", "waiting"];
const FAULTY = new Set(["infrastructure", "undecided"]);
const ANSWERED = new Set(["passed", "not passed"]);
const COMPARE = new Map([
  ["<", (/** @type {number} */ a, /** @type {number} */ b) => a < b],
  ["≤", (/** @type {number} */ a, /** @type {number} */ b) => a <= b],
  ["=", (/** @type {number} */ a, /** @type {number} */ b) => a === b],
  ["≥", (/** @type {number} */ a, /** @type {number} */ b) => a >= b],
  [">", (/** @type {number} */ a, /** @type {number} */ b) => a > b],
]);
export const SIGNS = [...COMPARE.keys()];

/** @param {string} outcome Whether it says something about what was measured. */
export function isAnswer(outcome) {
  return ANSWERED.has(outcome);
}

/** @param {string} outcome Whether it is a fault of the run, or of the suite's own code. */
export function isFault(outcome) {
  return FAULTY.has(outcome);
}

/** The rows of a run by number, and its head. */
export class RunModel {
  /** @param {RunSnapshot} snapshot */
  constructor(snapshot) {
    this.feed = snapshot.feed;
    this.revision = snapshot.revision;
    this.head = snapshot.head;
    this.rows = snapshot.rows;
    /** @type {Record<string, number>} */
    this.places = Object.create(null);
    snapshot.columns.forEach((name, place) => (this.places[name] = place));
    /** @type {Map<string, number>} */
    this.numbers = new Map();
    this.rows.forEach((_, row) => this.numbers.set(this.keyOf(row), row));
  }

  /**
   * @param {RunDelta} delta
   * @returns {"applied"|"known"|"gap"} `gap`: the viewer needs a snapshot.
   */
  apply(delta) {
    if (delta.feed !== this.feed || delta.from > this.revision) return "gap";
    if (delta.revision < this.revision) return "known";
    for (const [row, values] of delta.rows) {
      if (row > this.rows.length) return "gap";
      this.rows[row] = values;
      this.numbers.set(this.keyOf(row), row);
    }
    this.revision = delta.revision;
    this.head = delta.head;
    return "applied";
  }

  /** @param {number} row @param {SampleColumn} column @returns {any} */
  get(row, column) {
    return this.rows[row][this.places[column]];
  }

  /** @param {number} row */
  keyOf(row) {
    return `${this.get(row, "epoch")} ${this.get(row, "id")}`;
  }

  /** @param {string} id @param {number|string} epoch The number of a row; undefined if there is none. */
  rowOf(id, epoch) {
    return this.numbers.get(`${epoch} ${id}`);
  }

  get scoreNames() {
    return this.head.scores.map(([name]) => name);
  }
}

/** Which rows are shown, and in which order. */
export class SampleFilter {
  constructor() {
    this.text = "";
    this.outcome = "";
    this.status = "";
    this.tag = "";
    this.member = "";
    this.score = -1;
    this.sign = "<";
    this.bound = NaN;
    /** @type {SampleColumn|"score"} */
    this.order = "position";
    this.isDescending = false;
  }

  get isSet() {
    const { text, outcome, status, tag, member, score, bound } = this;
    return Boolean(text || outcome || status || tag || member || (score >= 0 && !Number.isNaN(bound)));
  }

  /** @param {RunModel} model @returns {number[]} The rows that match, in order. */
  rowsOf(model) {
    const rows = [];
    const words = this.text.toLowerCase().split(/\s+/).filter(Boolean);
    for (let row = 0; row < model.rows.length; row += 1) if (this.#matches(model, row, words)) rows.push(row);
    return this.#sort(model, rows);
  }

  /** @param {RunModel} model @param {number} row @param {string[]} words */
  #matches(model, row, words) {
    const outcome = model.get(row, "outcome");
    if (this.outcome === "faults" ? !isFault(outcome) : this.outcome && outcome !== this.outcome) return false;
    if (this.status && model.get(row, "kind") !== this.status) return false;
    if (this.tag && !model.get(row, "tags").includes(this.tag)) return false;
    if (this.member && !membersOf(model, row).includes(this.member)) return false;
    if (this.score >= 0 && !Number.isNaN(this.bound)) {
      const value = model.get(row, "values")[this.score];
      if (typeof value !== "number" || !COMPARE.get(this.sign)?.(value, this.bound)) return false;
    }
    return words.length === 0 || matchesWords(model, row, words);
  }

  /** @param {RunModel} model @param {number[]} rows */
  #sort(model, rows) {
    const { order } = this;
    const turn = this.isDescending ? -1 : 1;
    const keys = rows.map((row) => (order === "score" ? model.get(row, "values")[0] : sortKey(model, row, order)));
    const places = rows.map((_, index) => index);
    places.sort((a, b) => {
      const [x, y] = [keys[a], keys[b]];
      if (x === y) return a - b;
      if (x === null || x === undefined) return 1; // what is unknown comes last, in either direction
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * turn;
    });
    return places.map((index) => rows[index]);
  }
}

/** @param {RunModel} model @param {number} row @param {SampleColumn} order */
function sortKey(model, row, order) {
  const value = model.get(row, order);
  return order === "outcome" ? OUTCOMES.indexOf(value) : value;
}

/** @param {RunModel} model @param {number} row @returns {string[]} Its metadata as `name=value`. */
export function membersOf(model, row) {
  return model.get(row, "metadata").map((/** @type {[string, string]} */ [name, value]) => `${name}=${value}`);
}

/** @param {RunModel} model @param {number} row @param {string[]} words All of them must be found, in lower case. */
function matchesWords(model, row, words) {
  const columns = /** @type {const} */ (["id", "input", "answer", "why", "kind", "outcome"]);
  const whole = [...columns.map((column) => model.get(row, column)), ...model.get(row, "tags"), ...membersOf(model, row)]
    .join("\n").toLowerCase();
  return words.every((word) => whole.includes(word));
}

/**
 * What the rows can be filtered by: values with how many rows have them, most frequent first.
 * @param {RunModel} model
 * @param {(row: number) => string[]} valuesOf
 * @param {number} most
 * @returns {[string, number][]}
 */
export function countValues(model, valuesOf, most) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (let row = 0; row < model.rows.length; row += 1) {
    for (const value of valuesOf(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, most);
}

/**
 * @typedef {{id: string, first: number[], second: number[], change: string, before: number|null,
 *   after: number|null, position: number}} PairRow
 * One sample of two runs. `first`, `second`: its rows. `before`, `after`: how often it passed, from 0 to 1.
 */

export const CHANGES = ["worse", "better", "same", "only first", "only second", "no answer"];

/**
 * Pairs the samples of two runs: those that changed first, then in the suite's order.
 * @param {RunModel} first
 * @param {RunModel} second
 * @returns {PairRow[]}
 */
export function pairSamples(first, second) {
  const [before, after] = [groupBySample(first), groupBySample(second)];
  const ids = [...new Set([...before.keys(), ...after.keys()])];
  return ids.map((id, position) => {
    const [one, other] = [before.get(id) ?? [], after.get(id) ?? []];
    const [x, y] = [passShare(first, one), passShare(second, other)];
    return { id, first: one, second: other, change: changeOf(x, y), before: x, after: y, position };
  }).sort((a, b) => CHANGES.indexOf(a.change) - CHANGES.indexOf(b.change) || a.position - b.position);
}

/** @param {number|null} before @param {number|null} after */
function changeOf(before, after) {
  if (before === null) return after === null ? "no answer" : "only second";
  if (after === null) return "only first";
  if (before === after) return "same";
  return after > before ? "better" : "worse";
}

/** @param {RunModel} model @returns {Map<string, number[]>} */
function groupBySample(model) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  for (let row = 0; row < model.rows.length; row += 1) {
    const id = model.get(row, "id");
    const group = groups.get(id);
    if (group) group.push(row);
    else groups.set(id, [row]);
  }
  return groups;
}

/** @param {RunModel} model @param {number[]} rows @returns {number|null} Null = none of them is an answer. */
function passShare(model, rows) {
  const answers = rows.map((row) => model.get(row, "outcome")).filter(isAnswer);
  return answers.length ? answers.filter((each) => each === "passed").length / answers.length : null;
}
