import assert from "node:assert/strict";
import { test } from "node:test";

import { groupOf, TreeModel } from "../../../../sessiontree/view/page/model.js";
import { drawRow, makeDelta, makeDice, makeRow, makeSnapshot } from "./sample_tree.mjs";

function seen({ rows, sums, children, roots, revision, approvals }) {
  return { rows, sums, children, roots, revision, approvals };
}

test("any sequence of deltas leads to the same model as the snapshot at its end", () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const dice = makeDice(seed);
    const rows = [drawRow(dice, 0, null)];
    const model = new TreeModel(makeSnapshot([...rows]));
    for (let revision = 1; revision < 30; revision += 1) {
      const changed = new Set();
      for (let count = dice(6); count > 0; count -= 1) {
        const isNew = dice(2) === 0;
        const number = isNew ? rows.length : dice(rows.length);
        const parent = isNew ? dice(rows.length) : rows[number][3];
        rows[number] = drawRow(dice, number, parent);
        changed.add(number);
      }
      const news = [...changed].sort((a, b) => a - b).map((number) => [number, rows[number]]);
      const late = makeDelta(Math.max(1, revision - dice(3)), news, { revision: revision + 1 });
      assert.equal(model.apply(late), "applied");
    }
    assert.deepEqual(seen(model), seen(new TreeModel(makeSnapshot(rows, { revision: 30 }))), `seed ${seed}`);
  }
});

test("the sums of a subtree are those of its sessions", () => {
  const dice = makeDice(5);
  const rows = [drawRow(dice, 0, null)];
  while (rows.length < 200) rows.push(drawRow(dice, rows.length, dice(rows.length)));
  const model = new TreeModel(makeSnapshot(rows));
  const below = (row) => [row, ...model.children[row].flatMap(below)];
  for (const row of rows.keys()) {
    const all = below(row);
    assert.equal(model.sums[row].tokens, all.reduce((sum, each) => sum + rows[each][8], 0));
    assert.equal(model.sums[row].sessions, all.length);
    assert.equal(model.sums[row].failed, all.filter((each) => groupOf(rows[each][4]) === "failed").length);
    const cost = all.reduce((sum, each) => sum + (rows[each][9] ?? 0), 0);
    assert.ok(Math.abs((model.costBelow(row) ?? 0) - cost) < 1e-9);
  }
});

test("a changed row is added to the rows above it and to no other", () => {
  const rows = [makeRow(0, null), ...Array.from({ length: 1000 }, (_, each) => makeRow(each + 1, each % 2 ? each : 0))];
  const model = new TreeModel(makeSnapshot(rows));
  const depth = model.above(1000).length + 1;
  let read = 0;
  model.sums = new Proxy(model.sums, { get: (sums, name) => (/^\d+$/.test(String(name)) && (read += 1), sums[name]) });
  model.apply(makeDelta(1, [[1000, makeRow(1000, rows[1000][3], { tokens: 99 })]]));
  assert.equal(read, depth);
});

test("a delta that leaves a gap is refused", () => {
  const model = new TreeModel(makeSnapshot([makeRow(0, null)], { revision: 5 }));
  assert.equal(model.apply(makeDelta(6, [])), "gap");
  assert.equal(model.apply(makeDelta(5, [], { feed: "other" })), "gap");
  assert.equal(model.apply(makeDelta(5, [[3, makeRow(3, 0)]])), "gap");
  assert.equal(model.apply(makeDelta(3, [])), "known");
  assert.equal(model.apply(makeDelta(4, [], { revision: 6 })), "applied");
});

test("requests stay as they are unless a delta has them", () => {
  const model = new TreeModel(makeSnapshot([makeRow(0, null)], { approvals: [{ id: "r1" }] }));
  model.apply(makeDelta(1, []));
  assert.deepEqual(model.approvals, [{ id: "r1" }]);
  model.apply(makeDelta(2, [], { approvals: [] }));
  assert.deepEqual(model.approvals, []);
});

test("a subtree without any known price has no cost", () => {
  const rows = [makeRow(0, null, { cost_usd: null }), makeRow(1, 0, { cost_usd: null }), makeRow(2, 0)];
  const model = new TreeModel(makeSnapshot(rows));
  assert.equal(model.costBelow(1), null);
  assert.equal(model.costBelow(0), 0.001);
});

test("the next failure goes through the tree in its order, and begins again", () => {
  const rows = [
    makeRow(0, null), makeRow(1, 0), makeRow(2, 0, { state: "failed" }), makeRow(3, 1, { state: "expired" }),
    makeRow(4, 2, { state: "failed" }), makeRow(5, 0),
  ];
  const model = new TreeModel(makeSnapshot(rows));
  assert.deepEqual([null, 3, 2, 4, 5].map((after) => model.nextFailed(after)), [3, 2, 4, 3, 3]);
  const calm = new TreeModel(makeSnapshot([makeRow(0, null), makeRow(1, 0, { failures: 2 })]));
  assert.equal(calm.nextFailed(null), 1);
  assert.equal(new TreeModel(makeSnapshot([makeRow(0, null)])).nextFailed(0), null);
});

test("a session may have the name of a member of every object", () => {
  const rows = [makeRow(0, null, { path: "__proto__" }), makeRow(1, 0, { path: "constructor", state: "toString" })];
  const model = new TreeModel(makeSnapshot(rows));
  assert.equal(model.numberOf("__proto__"), 0);
  assert.equal(model.numberOf("constructor"), 1);
  assert.equal(model.numberOf("toString"), undefined);
  assert.equal(groupOf("toString"), "working");
});
