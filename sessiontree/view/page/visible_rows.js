/**
 * Which rows of a tree a viewer sees, in which order and how deep: filter, folded subtrees, folded repeats.
 */

import { groupOf } from "./model.js";

/** @import { TreeModel } from "./model.js" */

/**
 * @typedef {{row: number, depth: number, rails: boolean[], place: number, family: number, hides: number,
 *   isMatch: boolean}} Line
 * A line of the list. `rails`: for each level above, whether its line goes on below. `place`: place among
 * its siblings from 1, of `family`. `hides` > 0: the line stands for that many sessions alike, of which
 * `row` is the first. `isMatch`: false for a session that is shown only because of one below it.
 */

const LEAST_REPEATS = 5;

/** @param {string} label The label of sessions that were made alike: numbers do not count. */
export function stemOf(label) {
  return label.replace(/[0-9]+/g, "#");
}

/** The lines of a tree, in the order of the tree. */
export class VisibleRows {
  /** @param {TreeModel} model */
  constructor(model) {
    this.model = model;
    this.text = "";
    this.group = "all";
    this.kind = "";
    /** @type {Set<number>} Sessions whose subtree is folded. */
    this.folded = new Set();
    /** @type {Set<number>} First sessions of repeats that are shown one by one. */
    this.spread = new Set();
    /** @type {Line[]} */
    this.lines = [];
    /** @type {Map<number, number>} By row the index of its line. */
    this.indexes = new Map();
    this.matches = 0;
    this.build();
  }

  get isFiltered() {
    return this.text !== "" || this.group !== "all" || this.kind !== "";
  }

  /** Makes the lines anew; O(sessions). */
  build() {
    this.lines = [];
    this.indexes = new Map();
    this.matches = 0;
    const keep = this.isFiltered ? this.#kept() : null;
    this.#addFamily(this.model.roots, 0, [], keep);
  }

  /** @param {number} row The index of a row's line; -1 if it is hidden. */
  indexOf(row) {
    return this.indexes.get(row) ?? -1;
  }

  /** @param {number} row */
  isOpen(row) {
    return this.model.children[row].length > 0 && (this.isFiltered || !this.folded.has(row));
  }

  /**
   * Shows a row: opens what hides it.
   * @param {number} row
   */
  reveal(row) {
    if (this.indexOf(row) >= 0) return;
    for (const up of this.model.above(row)) this.folded.delete(up);
    for (const each of [row, ...this.model.above(row)]) {
      const parent = this.model.parentOf(each);
      const family = parent === null ? this.model.roots : this.model.children[parent];
      for (const run of this.#runs(family)) if (run.length > 1 && run.includes(each)) this.spread.add(run[0]);
    }
    if (this.isFiltered && !this.#isMatch(row)) {
      this.text = "";
      this.group = "all";
      this.kind = "";
    }
    this.build();
  }

  /**
   * Folds or opens every session below a depth.
   * @param {boolean} isFolded
   */
  foldAll(isFolded) {
    this.folded.clear();
    if (isFolded) {
      this.model.children.forEach((below, row) => {
        if (below.length && this.model.parentOf(row) !== null) this.folded.add(row);
      });
    }
    this.build();
  }

  /** @param {number} row */
  #isMatch(row) {
    const model = this.model;
    const state = model.get(row, "state");
    if (this.group === "live" ? ["ended", "failed"].includes(groupOf(state)) : false) return false;
    if (this.group === "troubled" && groupOf(state) !== "failed" && !model.get(row, "failures")) return false;
    if (!["all", "live", "troubled"].includes(this.group) && groupOf(state) !== this.group) return false;
    if (this.kind && model.get(row, "kind") !== this.kind) return false;
    if (!this.text) return true;
    const text = this.text.toLowerCase();
    const columns = /** @type {const} */ (["label", "path", "kind", "state", "why", "call"]);
    return columns.some((column) => String(model.get(row, column)).toLowerCase().includes(text));
  }

  /** @returns {Map<number, boolean>} The rows to show; by each, whether it matches itself. */
  #kept() {
    /** @type {Map<number, boolean>} */
    const keep = new Map();
    for (let row = this.model.rows.length - 1; row >= 0; row -= 1) {
      if (!this.#isMatch(row)) continue;
      keep.set(row, true);
      this.matches += 1;
      for (let up = this.model.parentOf(row); up !== null; up = this.model.parentOf(up)) {
        if (keep.has(up)) break;
        keep.set(up, false);
      }
    }
    return keep;
  }

  /**
   * @param {number[]} family
   * @param {number} depth
   * @param {boolean[]} rails
   * @param {Map<number, boolean>|null} keep
   */
  #addFamily(family, depth, rails, keep) {
    const shown = keep === null ? family : family.filter((row) => keep.has(row));
    const runs = keep === null ? this.#runs(shown) : shown.map((row) => [row]);
    const entries = runs.flatMap((run) => {
      if (run.length > 1 && !this.spread.has(run[0])) return [{ row: run[0], hides: run.length }];
      return run.map((row) => ({ row, hides: 0 }));
    });
    entries.forEach(({ row, hides }, index) => {
      const isLast = index === entries.length - 1;
      this.indexes.set(row, this.lines.length);
      const isMatch = keep === null || keep.get(row) === true;
      const place = index + 1;
      this.lines.push({ row, depth, rails: [...rails, !isLast], place, family: entries.length, hides, isMatch });
      if (hides === 0 && this.isOpen(row)) {
        this.#addFamily(this.model.children[row], depth + 1, [...rails, !isLast], keep);
      }
    });
  }

  /**
   * @param {number[]} family
   * @returns {number[][]} The family in runs; more than one in a run: neighbours that completed alike.
   */
  #runs(family) {
    if (family.length < LEAST_REPEATS) return family.map((row) => [row]);
    /** @type {number[][]} */
    const runs = [];
    let last = "";
    for (const row of family) {
      const alike = this.#likeness(row);
      if (alike && alike === last) runs[runs.length - 1].push(row);
      else runs.push([row]);
      last = alike;
    }
    return runs.flatMap((run) => (run.length >= LEAST_REPEATS ? [run] : run.map((row) => [row])));
  }

  /** @param {number} row What repeats of a session have in common; empty = it has none. */
  #likeness(row) {
    const { failed, failures, live } = this.model.sums[row];
    if (failed || failures || live || this.model.get(row, "state") !== "completed") return "";
    return `${this.model.get(row, "kind")} ${stemOf(this.model.get(row, "label"))}`;
  }
}
