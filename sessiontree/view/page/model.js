/**
 * The model of a tree as a viewer holds it: a snapshot, kept up to date by deltas.
 *
 * It is pure: it draws nothing and asks nobody. A changed row costs O(its depth), for its subtree's sums.
 */

/**
 * @typedef {"path"|"kind"|"label"|"parent"|"state"|"why"|"call"|"turns"|"tokens"|"cost_usd"|"began_ms"
 *   |"ended_ms"|"failures"|"budget"} Column
 * @typedef {Array<any>} Row
 * @typedef {[string, string, boolean]} Argument
 * @typedef {[string, string]} DiffLine
 * @typedef {{id: string, session: string, through: string[], tool: string, tier: string, asked_ms: number,
 *   expires_ms: number|null, arguments: Argument[], diff: DiffLine[]|null, covers: string, opens: string,
 *   asked_by: string[], seq?: number}} Approval
 * @typedef {{text: string, options: {label: string, hint: string}[], is_free: boolean,
 *   may_choose_many: boolean}} QuestionItem
 * @typedef {{id: string, session: string, through: string[], asked_ms: number, expires_ms: number|null,
 *   items: QuestionItem[]}} Question
 * @typedef {{session: string, revision: number, page: string, shows: "html"|"file"|"web"|"a2ui"|"", title: string,
 *   is_shown: boolean}} CanvasHead
 * @typedef {{sessions: number, live: number, ended: Record<string, number>, requests: number,
 *   questions: number, tokens: number, input_tokens: number, output_tokens: number,
 *   cost_usd: number|null, is_cost_known: boolean}} Totals
 * @typedef {{id: string, purpose: string, workspace: string, model: string, created_ms: number,
 *   is_over: boolean, is_live: boolean, is_whole: boolean}} TreeFacts
 * @typedef {{kind: "snapshot", version: number, feed: string, revision: number, seq: number, at_ms: number,
 *   tree: TreeFacts, can: string[], totals: Totals, columns: string[], rows: Row[],
 *   approvals: Approval[], questions: Question[], canvases?: CanvasHead[]}} Snapshot
 * @typedef {{kind: "delta", feed: string, from: number, revision: number, seq: number, at_ms: number,
 *   is_over: boolean, is_live: boolean, totals: Totals, rows: [number, Row][],
 *   approvals?: Approval[], questions?: Question[], canvases?: CanvasHead[]}} Delta
 * @typedef {{kind: "status", status: "connected"|"reconnecting"|"closed"|"refused"}} StatusNews
 * @typedef {Snapshot|Delta|StatusNews} News
 * @typedef {{open(onNews: (news: News) => void): Promise<Snapshot>,
 *   ask(verb: string, given: object): Promise<any>, close(): void, reads?: Set<string>, hasPages?: boolean,
 *   framePath?: string}} Source `framePath`: where the frames of its canvases are; without it they are not shown.
 * @typedef {{tokens: number, nanos: number, unpriced: number, failed: number, failures: number,
 *   live: number, sessions: number}} Sums
 */

const NANOS = 1e9;
const ENDED = new Set(["completed", "failed", "cancelled", "expired"]);
const BROKEN = new Set(["failed", "expired"]);

/** @param {string} state */
export function isEnded(state) {
  return ENDED.has(state);
}

/** @param {string} state Whether a session in this state ended without a result. */
export function isBroken(state) {
  return BROKEN.has(state);
}

/** @param {string} state The group of a state, by which rows are filtered. */
export function groupOf(state) {
  if (state.startsWith("waiting") || state === "suspended") return "waiting";
  if (BROKEN.has(state)) return "failed";
  return ENDED.has(state) ? "ended" : "working";
}

/** A tree's rows, their sums by subtree, its totals and what a person is asked. */
export class TreeModel {
  /** @param {Snapshot} snapshot */
  constructor(snapshot) {
    this.feed = snapshot.feed;
    this.revision = snapshot.revision;
    this.seq = snapshot.seq;
    this.at_ms = snapshot.at_ms;
    this.tree = { ...snapshot.tree };
    this.can = new Set(snapshot.can);
    this.totals = snapshot.totals;
    this.approvals = snapshot.approvals;
    this.questions = snapshot.questions;
    this.canvases = snapshot.canvases ?? [];
    /** @type {Record<string, number>} */
    this.places = Object.create(null);
    snapshot.columns.forEach((name, place) => (this.places[name] = place));
    /** @type {Row[]} */
    this.rows = [];
    /** @type {number[][]} */
    this.children = [];
    /** @type {number[]} */
    this.roots = [];
    /** @type {Sums[]} The sums of each row's subtree, the row itself with it. */
    this.sums = [];
    /** @type {Map<string, number>} */
    this.numbers = new Map();
    /** Grows when a row is added. */
    this.shape = 0;
    snapshot.rows.forEach((row, number) => this.put(number, row));
  }

  /**
   * Applies a delta.
   * @param {Delta} delta
   * @returns {"applied"|"known"|"gap"} `gap`: the viewer needs a snapshot.
   */
  apply(delta) {
    if (delta.feed !== this.feed || delta.from > this.revision) return "gap";
    if (delta.revision < this.revision) return "known";
    if (delta.rows.some(([number]) => number > this.rows.length + delta.rows.length)) return "gap";
    for (const [number, row] of delta.rows) {
      if (number > this.rows.length) return "gap";
      this.put(number, row);
    }
    this.revision = delta.revision;
    this.seq = delta.seq;
    this.at_ms = delta.at_ms;
    this.tree.is_over = delta.is_over;
    this.tree.is_live = delta.is_live;
    this.totals = delta.totals;
    if (delta.approvals) this.approvals = delta.approvals;
    if (delta.questions) this.questions = delta.questions;
    if (delta.canvases) this.canvases = delta.canvases;
    return "applied";
  }

  /**
   * @param {number} number
   * @param {Column} column
   * @returns {any}
   */
  get(number, column) {
    return this.rows[number][this.places[column]];
  }

  /** @param {number} number The number of a row's parent; null for a root. */
  parentOf(number) {
    return /** @type {number|null} */ (this.get(number, "parent"));
  }

  /** @param {string} path The number of the session's row; undefined if there is none. */
  numberOf(path) {
    return this.numbers.get(path);
  }

  /** @param {number} number The cost of a subtree in dollars; null if no price in it is known. */
  costBelow(number) {
    const { nanos, unpriced } = this.sums[number];
    return nanos || !unpriced ? nanos / NANOS : null;
  }

  /** @param {number} number The rows above a row, nearest first. */
  above(number) {
    const way = [];
    for (let up = this.parentOf(number); up !== null; up = this.parentOf(up)) way.push(up);
    return way;
  }

  /**
   * Finds the next session in tree order that failed, from the start again after the last.
   * @param {number|null} after A row; null begins at the start.
   * @returns {number|null} Sessions with failed calls count if no session failed.
   */
  nextFailed(after) {
    const key = this.roots.some((root) => this.sums[root].failed > 0) ? "failed" : "failures";
    const found = after === null ? null : this.#failedAfter(after, key);
    if (found !== null) return found;
    for (const root of this.roots) {
      const first = this.#firstFailed(root, key);
      if (first !== null) return first;
    }
    return null;
  }

  /**
   * @param {number} number
   * @param {Row} row
   */
  put(number, row) {
    const old = number < this.rows.length ? this.rows[number] : null;
    this.rows[number] = row;
    if (old === null) {
      this.children[number] = [];
      this.sums[number] = { tokens: 0, nanos: 0, unpriced: 0, failed: 0, failures: 0, live: 0, sessions: 0 };
      this.numbers.set(this.get(number, "path"), number);
      const parent = this.parentOf(number);
      (parent === null ? this.roots : this.children[parent]).push(number);
      this.shape += 1;
    }
    const now = this.#own(row);
    const before = old === null ? null : this.#own(old);
    /** @type {number|null} */
    let up = number;
    for (; up !== null; up = this.parentOf(up)) addSums(this.sums[up], now, before);
  }

  /**
   * @param {Row} row
   * @returns {Sums}
   */
  #own(row) {
    const state = row[this.places.state];
    const cost = row[this.places.cost_usd];
    return {
      tokens: row[this.places.tokens],
      nanos: cost === null ? 0 : Math.round(cost * NANOS), // whole numbers: sums of them do not drift
      unpriced: cost === null ? 1 : 0,
      failed: BROKEN.has(state) ? 1 : 0,
      failures: row[this.places.failures],
      live: ENDED.has(state) ? 0 : 1,
      sessions: 1,
    };
  }

  /**
   * @param {number} number
   * @param {"failed"|"failures"} key
   */
  #isFailed(number, key) {
    return key === "failed" ? BROKEN.has(this.get(number, "state")) : this.get(number, "failures") > 0;
  }

  /**
   * @param {number} top
   * @param {"failed"|"failures"} key
   * @returns {number|null}
   */
  #firstFailed(top, key) {
    let here = top;
    while (this.sums[here][key] > 0) {
      if (this.#isFailed(here, key)) return here;
      const next = this.children[here].find((child) => this.sums[child][key] > 0);
      if (next === undefined) return null;
      here = next;
    }
    return null;
  }

  /**
   * @param {number} number
   * @param {"failed"|"failures"} key
   * @returns {number|null}
   */
  #failedAfter(number, key) {
    for (const child of this.children[number]) {
      const found = this.#firstFailed(child, key);
      if (found !== null) return found;
    }
    /** @type {number|null} */
    let here = number;
    while (here !== null) {
      /** @type {number|null} */
      const parent = this.parentOf(here);
      const family = parent === null ? this.roots : this.children[parent];
      for (const sibling of family) {
        if (sibling <= here) continue; // children are in spawn order, so numbers rise
        const found = this.#firstFailed(sibling, key);
        if (found !== null) return found;
      }
      here = parent;
    }
    return null;
  }
}

/**
 * @param {Sums} sums
 * @param {Sums} now
 * @param {Sums|null} before
 */
function addSums(sums, now, before) {
  sums.tokens += now.tokens - (before?.tokens ?? 0);
  sums.nanos += now.nanos - (before?.nanos ?? 0);
  sums.unpriced += now.unpriced - (before?.unpriced ?? 0);
  sums.failed += now.failed - (before?.failed ?? 0);
  sums.failures += now.failures - (before?.failures ?? 0);
  sums.live += now.live - (before?.live ?? 0);
  sums.sessions += now.sessions - (before?.sessions ?? 0);
}
