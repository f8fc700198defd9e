/** Runs over HTTP at the page's own origin, live: `sessiontree bench view`. */

import { HttpSource } from "./source_http.js";

/** @import { RunHeadFacts, RunSource } from "./run_model.js" */
/** @import { Source } from "./model.js" */

/**
 * @typedef {{differences: string[], table: string[][], why_not: string}} PairWords
 * @typedef {{isLive: boolean, list(): Promise<RunHeadFacts[]>, openRun(number: number): RunSource,
 *   pair(first: number, second: number): Promise<PairWords>,
 *   openTree(number: number, tree: string, content: any): Source|null}} RunsPlace
 * Where runs come from. `openTree`: null = this place does not have the tree.
 */

/** @implements {RunsPlace} */
export class HttpRuns {
  constructor() {
    this.isLive = true;
    this.asking = new HttpSource("");
  }

  async list() {
    return (await this.asking.ask("runs", {})).runs;
  }

  /** @param {number} number @returns {RunSource} */
  openRun(number) {
    return new HttpSource(`/r/${number}`);
  }

  /** @param {number} first @param {number} second */
  pair(first, second) {
    return this.asking.ask("pair", { first, second });
  }

  /** @param {number} number @param {string} tree */
  openTree(number, tree) {
    const source = new HttpSource(`/r/${number}/t/${encodeURIComponent(tree)}`);
    source.hasPages = false; // there is no list of trees here
    return source;
  }
}
