/** One sample: its task and its answer, its scores with their reasons, its attempts, and its tree. */

import { make, makeButton, makeForeign, makePlaceLink } from "./elements.js";
import { formatDate, formatValue, makeOutcome } from "./run_words.js";
import { mountTree } from "./session_tree.js";
import { formatCost, formatCount, formatDuration, wordsOf } from "./text.js";

/** @import { RunsPlace } from "./source_runs.js" */
/** @import { RunSource } from "./run_model.js" */

/** @typedef {{text: string, is_cut: boolean}} Words */

/**
 * Makes a text of somebody else as it is; null for an empty one.
 * @param {Words|null|undefined} words
 * @param {string} [name]
 */
export function makeWords(words, name = "") {
  if (!words?.text) return null;
  const block = make("pre", { class: `words ${name}`, tabindex: words.text.length > 400 ? 0 : null },
    makeForeign(words.text));
  if (!words.is_cut) return block;
  return make("div", {}, block, make("p", { class: "cut" }, "This is cut; sessiontree bench show has all of it."));
}

/** @param {string} title @param {...any} parts A part of the pane; null if it would be empty. */
export function makePart(title, ...parts) {
  const shown = parts.filter((part) => part !== null);
  return shown.length ? make("section", { class: "part-of" }, make("h3", {}, title), ...shown) : null;
}

/** @param {any} content The scores of a sample, each with its reason. */
export function makeScores(content) {
  if (!content.scores.length) return null;
  return make("div", { class: "score-list" }, ...content.scores.map((/** @type {any} */ score) => {
    const head = make("p", { class: "score-head" }, make("b", {}, makeForeign(score.name)),
      make("span", { class: "score-value" }, formatValue(score.value)), makeOutcome(score.passed ? "passed" : "not passed"));
    return make("div", { class: "score", "data-outcome": score.passed ? "passed" : "not-passed" }, head,
      makeLabelled("answer", score.answer), makeLabelled("reason", score.explanation), makeLabelled("metadata", score.metadata));
  }));
}

/** @param {string} label @param {Words} words */
function makeLabelled(label, words) {
  const block = makeWords(words, "small");
  return block ? make("div", { class: "labelled" }, make("span", { class: "label-of-text" }, label), block) : null;
}

/** @param {any} content What went wrong, and where. */
export function makeError(content) {
  if (!content.failure) return null;
  const { kind, text, raised } = content.failure;
  return makePart("Failure", make("p", { class: "fault" }, makeForeign(kind)), makeWords(text, "bad"), makeWords(raised));
}

/** @param {any} content */
function makeUsed(content) {
  const { used } = content;
  if (!used) return null;
  const pairs = [
    ["Time", formatDuration(used.wall_ms)], ["Cost", formatCost(used.cost_usd)],
    ["Tokens", `${formatCount(used.input_tokens)} in, ${formatCount(used.output_tokens)} out`],
    ["Turns", formatCount(used.turns)], ["Calls", formatCount(used.tool_calls)], ["Sessions", formatCount(used.sessions)],
    ["Scored", formatDate(used.at_ms)],
  ];
  return make("dl", { class: "figures" },
    ...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** @param {any} content */
function makeMembers(content) {
  const rows = content.metadata.map((/** @type {[string, string]} */ [name, value]) =>
    [make("dt", {}, makeForeign(name)), make("dd", {}, make("pre", {}, makeForeign(value)))]).flat();
  return rows.length ? make("dl", { class: "arguments" }, ...rows) : null;
}

/** @param {string} caption @param {string[]} heads @param {any[][]} rows */
function makeRecords(caption, heads, rows) {
  if (!rows.length) return null;
  const lines = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))));
  const head = make("tr", {}, ...heads.map((words) => make("th", { scope: "col" }, words)));
  return make("div", { class: "table", tabindex: 0, role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...lines)));
}

/** @param {any} content */
function makeAttempts(content) {
  return makeRecords("Attempts", ["No.", "Ended", "Took", "Tree", "Failure"], content.attempts.map((/** @type {any} */ each) => [
    String(each.number), makeForeign(each.outcome),
    each.ended_ms === null ? "–" : formatDuration(Math.max(0, each.ended_ms - each.began_ms)),
    makeForeign(each.tree || "–"), makeForeign(each.error || "–"),
  ]));
}

/** @param {any} content */
function makeHistory(content) {
  return makeRecords("Earlier scores", ["No.", "Scores", "Outcome", "Given", "Gave way", "Reason"],
    content.history.map((/** @type {any} */ each) => [
      String(each.revision), makeForeign(each.scores.map((/** @type {[string, number]} */ [name, value]) =>
        `${name} ${formatValue(value)}`).join(", ")),
      makeOutcome(each.outcome), formatDate(each.at_ms), formatDate(each.superseded_ms),
      makeForeign(each.reason),
    ]));
}

/** The pane beside the samples. */
export class SamplePane {
  /**
   * @param {RunsPlace} place
   * @param {number} number The run.
   * @param {RunSource} source
   * @param {{close(): void, step(step: number): void, widen(): void}} desk
   */
  constructor(place, number, source, desk) {
    this.place = place;
    this.number = number;
    this.source = source;
    this.desk = desk;
    this.row = -1;
    this.tab = "sample";
    /** @type {any} */
    this.content = null;
    this.title = make("h2", { tabindex: -1 });
    this.under = make("p", { class: "under-title" });
    this.widen = makeButton("⤢", () => desk.widen(), {
      "aria-label": "Full width (f)", title: "Full width (f)", class: "widen",
    });
    this.tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the sample" });
    this.body = make("div", { class: "content", role: "tabpanel", tabindex: 0, id: "sample-panel" });
    const back = makeButton("← Samples", () => desk.close(), { class: "back" });
    const buttons = make("div", { class: "pane-buttons" },
      makeButton("↑", () => desk.step(-1), { "aria-label": "Previous sample (k)", title: "Previous (k)" }),
      makeButton("↓", () => desk.step(1), { "aria-label": "Next sample (j)", title: "Next (j)" }), this.widen,
      makeButton("✕", () => desk.close(), { "aria-label": "Close (Esc)", title: "Close (Esc)", class: "close" }));
    this.element = make("section", { class: "detail pane", "aria-label": "Sample", hidden: true },
      make("div", { class: "pane-head" }, back, make("div", { class: "titles" }, this.title, this.under), buttons),
      make("div", { class: "tab-line" }, this.tabs), this.body);
    for (const [name, words] of [["sample", "Sample"], ["tree", "Tree"], ["attempts", "Attempts"]]) {
      this.tabs.append(makeButton(words, () => this.show(name), {
        role: "tab", id: `tab-${name}`, "data-tab": name, "aria-controls": "sample-panel",
      }));
    }
    this.tabs.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#turn(event));
  }

  /** @param {KeyboardEvent} event */
  #turn(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const open = [...this.tabs.children].filter((tab) => !tab.hidden);
    const at = open.findIndex((tab) => tab.dataset.tab === this.tab);
    const next = open[(at + step + open.length) % open.length];
    this.show(next.dataset.tab);
    next.focus();
    event.preventDefault();
  }

  /**
   * Opens a sample.
   * @param {number} row
   * @param {boolean} isEntered Whether the focus goes there.
   */
  async open(row, isEntered) {
    const isOther = row !== this.row;
    this.row = row;
    this.element.hidden = false;
    if (isOther && !this.content) {
      this.#emptyHead();
      this.body.replaceChildren(make("p", { class: "empty", role: "status" }, "Reading…"));
    }
    try {
      const content = await this.source.ask("sample", { row });
      if (row !== this.row) return;
      this.content = content;
      this.#showHead();
      this.show(this.tab);
    } catch (error) {
      if (row !== this.row) return;
      this.content = null;
      this.#emptyHead();
      this.body.replaceChildren(make("p", { class: "fault", role: "alert" }, wordsOf(error)));
    }
    if (isEntered) this.title.focus();
  }

  close() {
    this.row = -1;
    this.content = null;
    this.body.replaceChildren();
    this.element.hidden = true;
  }

  /** A heading always has words: also while its sample is read, and after that failed. */
  #emptyHead() {
    this.title.replaceChildren("Sample");
    this.under.replaceChildren();
  }

  #showHead() {
    const { content } = this;
    this.title.replaceChildren(makeForeign(content.id));
    const parts = [makeOutcome(content.outcome)];
    if (content.status && content.status !== "completed") {
      parts.push(make("span", { class: "tag" }, makeForeign(content.status)));
    }
    for (const tag of content.tags) parts.push(make("span", { class: "tag" }, makeForeign(tag)));
    if (content.epochs.length > 1) {
      const links = content.epochs.map((/** @type {number} */ epoch) => (epoch === content.epoch ? make("b", {}, String(epoch))
        : makePlaceLink(["run", this.number, "sample", content.id, epoch], String(epoch))));
      parts.push(make("span", { class: "epochs" }, "epoch ", ...links));
    }
    this.under.replaceChildren(...parts);
    const [, tree, attempts] = this.tabs.children;
    tree.hidden = !content.tree;
    attempts.textContent = content.history.length
      ? `Attempts and history (${content.attempts.length + content.history.length})` : `Attempts (${content.attempts.length})`;
  }

  /** @param {string} name Shows a tab. */
  show(name) {
    const { content } = this;
    if (!content) return;
    this.tab = name;
    const shown = name === "tree" && !content.tree ? "sample" : name;
    for (const tab of this.tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.tab === shown));
      tab.tabIndex = tab.dataset.tab === shown ? 0 : -1;
    }
    this.body.setAttribute("aria-labelledby", `tab-${shown}`);
    this.body.classList.toggle("of-tree", shown === "tree");
    if (shown === "tree") this.#showTree();
    else if (shown === "attempts") this.#fill(makeAttempts(content), makeHistory(content), this.#sayNone());
    else this.#fill(...this.#sampleParts());
    this.body.scrollTop = 0;
  }

  /** @param {...any} parts */
  #fill(...parts) {
    this.body.replaceChildren(...parts.filter((part) => part !== null));
  }

  #sayNone() {
    return this.content.attempts.length ? null : make("p", { class: "empty" }, "It was not tried yet.");
  }

  #sampleParts() {
    const { content } = this;
    const isWithoutTask = content.input === null && content.target === null;
    return [
      makeUsed(content), makeError(content), makePart("Scores", makeScores(content)),
      makePart("Input", makeWords(content.input)), makePart("Target", makeWords(content.target)),
      makePart("Answer", makeWords(content.output)), makePart("Metadata", makeMembers(content)),
      isWithoutTask && !content.scores.length && !content.failure
        ? make("p", { class: "empty" }, content.attempts.length ? "It has no answer yet." : "It was not tried yet.") : null,
    ];
  }

  #showTree() {
    const source = this.place.openTree(this.number, this.content.tree, this.content);
    if (!source) {
      this.#fill(make("p", { class: "fault" }, makeForeign(this.content.missing ?? "This tree is not in the folder.")));
      return;
    }
    const host = make("div", { class: "tree-host" });
    this.body.replaceChildren(host);
    mountTree(host, source, this.element.getRootNode().host?.getAttribute("theme") ?? "");
  }

  /** @param {number} attempts Reads the sample again if it went on since; keeps the tree, which follows by itself. */
  refresh(attempts) {
    if (!this.content || this.tab === "tree") return;
    const isOpen = this.content.outcome === "running" || this.content.outcome === "waiting";
    if (isOpen || attempts !== this.content.attempts.length) this.open(this.row, false);
  }
}

