/** The model of a run: deltas, filters, orders, and what changed between two runs. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { countValues, membersOf, pairSamples, RunModel, SampleFilter } from "../../../../sessiontree/view/page/run_model.js";
import { makeDice } from "./sample_tree.mjs";

const COLUMNS = [
  "id", "epoch", "position", "outcome", "status", "kind", "why", "values", "passes", "wall_ms", "cost_usd", "tokens",
  "sessions", "attempts", "tree", "input", "answer", "tags", "metadata",
];
const OUTCOMES = ["passed", "not passed", "infrastructure", "undecided", "running", "waiting"];

function makeRow(position, given = {}) {
  const row = {
    id: `s${position}`, epoch: 1, position, outcome: "passed", status: "completed", kind: "", why: "", values: [1],
    passes: [true], wall_ms: 1000, cost_usd: 0.01, tokens: 10, sessions: 1, attempts: 1, tree: "t", input: `Task ${position}`,
    answer: "42", tags: [], metadata: [], ...given,
  };
  return COLUMNS.map((name) => row[name]);
}

function makeRun(rows, given = {}) {
  const head = { counts: {}, scores: [["exact", 0, 0, 0]], total: rows.length };
  return new RunModel({ kind: "snapshot", feed: "f", revision: 1, head, columns: COLUMNS, rows, ...given });
}

function idsOf(model, filter) {
  return filter.rowsOf(model).map((row) => model.get(row, "id"));
}

test("a delta replaces rows, adds rows, and asks for a snapshot where something is missing", () => {
  const model = makeRun([makeRow(0), makeRow(1)]);
  const delta = { kind: "delta", feed: "f", from: 1, revision: 3, head: { ...model.head, total: 3 } };
  assert.equal(model.apply({ ...delta, rows: [[1, makeRow(1, { outcome: "not passed" })], [2, makeRow(2)]] }), "applied");
  assert.equal(model.get(1, "outcome"), "not passed");
  assert.equal(model.rowOf("s2", 1), 2);
  assert.equal(model.head.total, 3);
  assert.equal(model.apply({ ...delta, revision: 2, rows: [] }), "known");
  assert.equal(model.apply({ ...delta, from: 4, revision: 5, rows: [] }), "gap");
  assert.equal(model.apply({ ...delta, feed: "other", rows: [] }), "gap");
  assert.equal(model.apply({ ...delta, revision: 4, rows: [[9, makeRow(9)]] }), "gap");
});

test("each part of a filter counts, and text is found in every column that is shown", () => {
  const model = makeRun([
    makeRow(0, { tags: ["rock"], metadata: [["level", "1"]] }),
    makeRow(1, { outcome: "not passed", status: "timeout", kind: "timeout", values: [0.25], why: "too late" }),
    makeRow(2, { outcome: "infrastructure", kind: "provider", values: [null] }),
    makeRow(3, { outcome: "undecided", kind: "scorer", values: [null], tags: ["rock", "gas"] }),
  ]);
  const filter = (given) => Object.assign(new SampleFilter(), given);
  assert.deepEqual(idsOf(model, filter({})), ["s0", "s1", "s2", "s3"]);
  assert.deepEqual(idsOf(model, filter({ outcome: "faults" })), ["s2", "s3"]);
  assert.deepEqual(idsOf(model, filter({ outcome: "not passed" })), ["s1"]);
  assert.deepEqual(idsOf(model, filter({ status: "provider" })), ["s2"]);
  assert.deepEqual(idsOf(model, filter({ tag: "rock" })), ["s0", "s3"]);
  assert.deepEqual(idsOf(model, filter({ member: "level=1" })), ["s0"]);
  assert.deepEqual(idsOf(model, filter({ text: "LATE task" })), ["s1"]);
  assert.deepEqual(idsOf(model, filter({ text: "gas" })), ["s3"]);
  assert.deepEqual(idsOf(model, filter({ score: 0, sign: "<", bound: 1 })), ["s1"]);
  assert.deepEqual(idsOf(model, filter({ score: 0, sign: "≥", bound: 0 })), ["s0", "s1"]);
  assert.deepEqual(idsOf(model, filter({ score: 0, sign: "<", bound: NaN })).length, 4);
  assert.deepEqual(countValues(model, (row) => model.get(row, "tags"), 10), [["rock", 2], ["gas", 1]]);
  assert.deepEqual(membersOf(model, 0), ["level=1"]);
});

test("orders are total, stable, and what is unknown comes last in either direction", () => {
  const dice = makeDice(7);
  const rows = Array.from({ length: 300 }, (_, place) => makeRow(place, {
    outcome: OUTCOMES[dice(6)], wall_ms: dice(4) ? dice(5) * 100 : null, values: dice(3) ? [dice(3) / 2] : [null],
    cost_usd: dice(4) ? dice(7) / 100 : null,
  }));
  const model = makeRun(rows);
  for (const order of ["position", "outcome", "wall_ms", "cost_usd", "score"]) {
    for (const isDescending of [false, true]) {
      const found = Object.assign(new SampleFilter(), { order, isDescending }).rowsOf(model);
      assert.equal(new Set(found).size, rows.length);
      const keys = found.map((row) => (order === "score" ? model.get(row, "values")[0] : order === "outcome"
        ? OUTCOMES.indexOf(model.get(row, order)) : model.get(row, order)));
      for (let place = 1; place < keys.length; place += 1) {
        const [x, y] = [keys[place - 1], keys[place]];
        if (x === null) assert.equal(y, null);
        else if (y !== null) assert.ok(isDescending ? x >= y : x <= y, `${order}: ${x}, ${y}`);
        if (x === y) assert.ok(found[place - 1] < found[place]);
      }
    }
  }
});

test("two runs are paired by sample over their epochs; faults are no answers", () => {
  const first = makeRun([
    makeRow(0), makeRow(1, { outcome: "not passed" }), makeRow(2), makeRow(3, { outcome: "infrastructure" }), makeRow(4),
    makeRow(5, { outcome: "undecided" }), makeRow(6), makeRow(6, { epoch: 2, outcome: "not passed" }),
  ]);
  const second = makeRun([
    makeRow(0, { outcome: "not passed" }), makeRow(1), makeRow(2), makeRow(3), makeRow(5, { outcome: "waiting" }),
    makeRow(6), makeRow(6, { epoch: 2 }), makeRow(7),
  ]);
  const changes = Object.fromEntries(pairSamples(first, second).map(({ id, change }) => [id, change]));
  assert.deepEqual(changes, {
    s0: "worse", s1: "better", s2: "same", s3: "only second", s4: "only first", s5: "no answer", s6: "better", s7: "only second",
  });
  const order = pairSamples(first, second).map(({ change }) => change);
  assert.deepEqual(order.slice(0, 3), ["worse", "better", "better"]);
});
