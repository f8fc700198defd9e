import assert from "node:assert/strict";
import { test } from "node:test";

import { TreeModel } from "../../../../sessiontree/view/page/model.js";
import { stemOf, VisibleRows } from "../../../../sessiontree/view/page/visible_rows.js";
import { drawRow, makeDice, makeRow, makeSnapshot } from "./sample_tree.mjs";

function show(rows, given = {}) {
  const view = new VisibleRows(new TreeModel(makeSnapshot(rows)));
  Object.assign(view, given);
  view.build();
  return view;
}

const shown = (view) => view.lines.map((line) => line.row);

test("lines are in the order of the tree, with depth, place and rails", () => {
  const view = show([makeRow(0, null), makeRow(1, 0), makeRow(2, 0), makeRow(3, 1)]);
  assert.deepEqual(shown(view), [0, 1, 3, 2]);
  assert.deepEqual(view.lines.map((line) => line.depth), [0, 1, 2, 1]);
  assert.deepEqual(view.lines[2].rails, [false, true, false]);
  assert.deepEqual([view.lines[3].place, view.lines[3].family], [2, 2]);
});

test("a folded subtree hides what is below it, and only that", () => {
  const view = show([makeRow(0, null), makeRow(1, 0), makeRow(2, 1), makeRow(3, 0)], { folded: new Set([1]) });
  assert.deepEqual(shown(view), [0, 1, 3]);
  assert.equal(view.indexOf(2), -1);
  view.reveal(2);
  assert.deepEqual(shown(view), [0, 1, 2, 3]);
});

test("a filter keeps the way to each match, folded or not", () => {
  const rows = [makeRow(0, null), makeRow(1, 0), makeRow(2, 1, { state: "failed", label: "Ärger" }), makeRow(3, 0)];
  const view = show(rows, { group: "failed", folded: new Set([1]) });
  assert.deepEqual(shown(view), [0, 1, 2]);
  assert.deepEqual(view.lines.map((line) => line.isMatch), [false, false, true]);
  assert.equal(view.matches, 1);
  assert.deepEqual(shown(show(rows, { text: "ärg" })), [0, 1, 2]);
  assert.deepEqual(shown(show(rows, { text: "nothing" })), []);
  assert.deepEqual(shown(show([makeRow(0, null, { kind: "main" }), makeRow(1, 0)], { kind: "main" })), [0]);
});

test("filters by state", () => {
  const states = ["active", "waiting for model", "failed", "completed", "cancelled", "suspended"];
  const rows = [makeRow(0, null, { state: "stopping" })];
  states.forEach((state, place) => rows.push(makeRow(place + 1, 0, { state, failures: state === "completed" ? 1 : 0 })));
  const matches = (group) => show(rows, { group }).lines.filter((line) => line.isMatch).map((line) => line.row);
  assert.deepEqual(matches("working"), [0, 1]);
  assert.deepEqual(matches("waiting"), [2, 6]);
  assert.deepEqual(matches("failed"), [3]);
  assert.deepEqual(matches("troubled"), [3, 4]);
  assert.deepEqual(matches("ended"), [4, 5]);
  assert.deepEqual(matches("live"), [0, 1, 2, 6]);
});

test("neighbours that completed alike are one line until they are spread", () => {
  const rows = [makeRow(0, null)];
  for (let each = 1; each <= 8; each += 1) rows.push(makeRow(each, 0, { label: `Read page ${each}` }));
  const view = show(rows);
  assert.deepEqual(view.lines.map((line) => [line.row, line.hides]), [[0, 0], [1, 8]]);
  view.reveal(5);
  assert.equal(view.lines.length, 9);
  rows[4] = makeRow(4, 0, { label: "Read page 4", failures: 1 });
  assert.equal(show(rows).lines.length, 9, "a run is broken by a session with a failure");
  assert.equal(stemOf("page 12 of 300"), "page # of #");
});

test("every session is in at most one line, and a line's index is known", () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const dice = makeDice(seed);
    const rows = [drawRow(dice, 0, null)];
    while (rows.length < 120) rows.push(drawRow(dice, rows.length, dice(rows.length)));
    const folded = new Set(Array.from({ length: 10 }, () => dice(120)));
    const view = show(rows, { folded, group: ["all", "failed", "working"][seed % 3] });
    assert.equal(new Set(shown(view)).size, view.lines.length);
    view.lines.forEach((line, index) => assert.equal(view.indexOf(line.row), index));
    const row = dice(120);
    view.reveal(row);
    assert.ok(view.indexOf(row) >= 0, `seed ${seed}: row ${row} is hidden`);
  }
});
