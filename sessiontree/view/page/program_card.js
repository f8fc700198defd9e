/** A program in the transcript: its phases, its text with the lines that wait, and the calls that matter now. */

import { make, makeButton, makeForeign, makePlaceLink, setText } from "./elements.js";
import { formatCount, formatNumber, wordsOf } from "./text.js";

/** @import { Desk } from "./session_tree.js" */
/** @import { Item } from "./transcript.js" */

/**
 * @typedef {{number: number, tool: string, gist: string, line: number, state: string, words: string, session: string,
 *   result: string, seq: number, ended_seq: number}} Step
 * @typedef {{function: string, tasks: number, is_over: boolean, counts: number[]}} FanOut
 * @typedef {{key: string, outcome: string, words: string, phases: string[], lines: [number, number][],
 *   notes: [string, string][], total: number, under_way: number, fan_outs: FanOut[], open: Step[], last: Step[],
 *   failed: Step[], steps: Step[]}} Told
 */

const STEPS_AT_ONCE = 200;
const COUNT_NAMES = ["running", "done", "failed", "lost", "not started"];
const STEP_SIGNS = new Map(Object.entries({
  done: "✓", failed: "✕", lost: "?", approval: "◆", answer: "?", child: "↳", running: "▸",
}));

/** One program; what it does is asked for when it is opened, and again when its session has changed. */
export class ProgramCard {
  /**
   * @param {Desk} desk
   * @param {string} session
   * @param {Item} item
   * @param {Node} figures
   */
  constructor(desk, session, item, figures) {
    this.desk = desk;
    this.session = session;
    this.key = item.call?.key ?? "";
    this.isOver = false;
    this.isAsking = false;
    this.isStale = false;
    this.isRead = false;
    this.asked = 0;
    this.words = make("span", { class: "gist" }, "");
    this.lines = item.text.trimEnd().split("\n").map((text) => makeLine(text));
    this.code = make("pre", { class: "code", tabindex: 0, role: "group", "aria-label": "The program's text" },
      ...this.lines.map(({ row }) => row));
    for (const type of ["wheel", "pointerdown", "keydown"]) {
      this.code.addEventListener(type, () => { this.isRead = true; }, { passive: true });
    }
    this.now = make("div", { class: "program-now", role: "status" });
    this.all = make("ol", { class: "steps", hidden: true });
    this.more = makeButton("", () => this.#showMore(), { class: "link", hidden: true });
    this.mark = make("span", { class: "mark" }, "…");
    const tool = makeForeign(item.call?.tool ?? "program", "tool");
    const head = make("summary", {}, tool, this.words, this.mark, figures);
    const parts = [this.code, item.is_cut ? make("p", { class: "cut" }, "Its text is cut.") : null, this.now,
      this.all, this.more];
    this.body = make("div", { class: "body" }, ...parts);
    this.element = make("details", { class: "call program", "data-seq": item.seq, tabindex: -1 }, head,
      this.body);
    this.element.addEventListener("toggle", () => this.element.open && this.refresh());
  }

  /** Asks what it does now; one question at a time. */
  async refresh() {
    if (!this.desk.reads("program")) return;
    if (this.isAsking) {
      this.isStale = true;
      return;
    }
    this.isAsking = true;
    try {
      this.#show(await this.#ask(0, 0));
    } catch (error) {
      setText(this.words, wordsOf(error));
    }
    this.isAsking = false;
    if (!this.isStale) return;
    this.isStale = false;
    this.refresh();
  }

  /** @param {number} after @param {number} most @returns {Promise<Told>} */
  #ask(after, most) {
    return this.desk.ask("program", { session: this.session, key: this.key, after, most });
  }

  /** @param {Told} told */
  #show(told) {
    this.isOver = told.outcome !== "";
    setText(this.words, `${told.phases.length && !this.isOver ? `${told.phases.at(-1)} · ` : ""}${told.words}`);
    const waiting = new Map(told.lines);
    for (const [at, line] of this.lines.entries()) markLine(line, waiting.get(at + 1) ?? 0);
    this.#showWaits();
    const parts = [];
    if (told.phases.length) parts.push(makePhases(told.phases, this.isOver));
    if (told.fan_outs.length) parts.push(makeFanOuts(told.fan_outs));
    const seen = new Set();
    for (const [words, steps] of /** @type {[string, Step[]][]} */ ([
      [moreWords("Under way", told.open.length, told.under_way), told.open], ["Failed", told.failed],
      ["Ended last", told.last],
    ])) {
      const fresh = steps.filter(({ number }) => !seen.has(number));
      for (const { number } of fresh) seen.add(number);
      if (fresh.length) parts.push(make("h4", {}, words), this.#list(fresh));
    }
    if (told.notes.length) parts.push(make("h4", {}, "It said"), makeNotes(told.notes));
    this.now.replaceChildren(...parts);
    this.more.hidden = told.total <= seen.size || this.asked >= told.total;
    setText(this.more, this.asked ? "Show more calls" : `Show all ${formatNumber(told.total, "call")}`);
  }

  /** Brings the first line that waits into the visible part of a long text, until a reader moves the text. */
  #showWaits() {
    const row = this.lines.find((each) => each.row.classList.contains("waits"))?.row;
    if (!row || this.isRead || this.code.scrollTop) return;
    const below = row.offsetTop + row.offsetHeight - this.code.clientHeight;
    if (below > 0) this.code.scrollTop = below + this.code.clientHeight / 2;
  }

  async #showMore() {
    try {
      const { steps, total } = await this.#ask(this.asked, STEPS_AT_ONCE);
      this.all.hidden = false;
      this.all.append(...steps.map((step) => this.#step(step)));
      this.asked += steps.length;
      this.more.hidden = this.asked >= total || !steps.length;
      setText(this.more, `Show more calls (${formatCount(this.asked)} of ${formatCount(total)} are shown)`);
    } catch (error) {
      this.desk.say(wordsOf(error));
    }
  }

  /** @param {Step[]} steps */
  #list(steps) {
    return make("ol", { class: "steps" }, ...steps.map((step) => this.#step(step)));
  }

  /** @param {Step} step */
  #step(step) {
    const sign = make("span", { class: "sign", "aria-hidden": "true" }, STEP_SIGNS.get(step.state) ?? "·");
    const child = step.session && this.desk.model.numberOf(step.session) !== undefined
      ? makePlaceLink([step.session], step.session) : null;
    return make("li", { "data-state": step.state }, sign, makeForeign(step.tool, "tool"),
      step.line ? make("span", { class: "figures" }, `line ${step.line}`) : null,
      make("span", { class: "state-word" }, step.words), child,
      makeForeign(step.result || step.gist, step.result ? "gist wrong" : "gist"));
  }
}

/** @param {string} text */
function makeLine(text) {
  const mark = make("span", { class: "wait-mark" });
  return { row: make("span", { class: "line" }, makeForeign(text), mark, "\n"), mark };
}

/** @param {{row: HTMLElement, mark: HTMLElement}} line @param {number} count */
function markLine({ row, mark }, count) {
  row.classList.toggle("waits", count > 0);
  setText(mark, count ? `◂ ${formatCount(count)} waiting` : "");
}

/** @param {string[]} phases @param {boolean} isOver */
function makePhases(phases, isOver) {
  const list = make("ol", { class: "phases", "aria-label": "Phases" });
  for (const [at, name] of phases.entries()) {
    const isNow = at === phases.length - 1 && !isOver;
    list.append(make("li", { "aria-current": isNow ? "step" : null }, makeForeign(name)));
  }
  return list;
}

/** @param {FanOut[]} fanOuts */
function makeFanOuts(fanOuts) {
  const head = make("tr", {}, ...["children", ...COUNT_NAMES].map((name) => make("th", { scope: "col" }, name)));
  const rows = fanOuts.map((each) => make("tr", {},
    make("th", { scope: "row" }, `${each.function} of ${formatCount(each.tasks)}`),
    ...each.counts.map((count) => make("td", { class: count ? null : "none" }, formatCount(count)))));
  return make("table", { class: "fan-outs" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

/** @param {[string, string][]} notes */
function makeNotes(notes) {
  return make("ul", { class: "notes" }, ...notes.map(([, text]) => make("li", {}, makeForeign(text))));
}

/** @param {string} words @param {number} shown @param {number} count */
function moreWords(words, shown, count) {
  return shown < count ? `${words}: ${formatCount(shown)} of ${formatCount(count)}` : words;
}
