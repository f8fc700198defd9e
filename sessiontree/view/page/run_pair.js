/** Two runs side by side, sample by sample: what got better, what got worse, and both answers to one task. */

import { make, makeButton, makeForeign, makePlaceLink, setText } from "./elements.js";
import { fillForeign, RowGrid } from "./row_grid.js";
import { CHANGES, pairSamples, RunModel } from "./run_model.js";
import { fillOutcome } from "./run_page.js";
import { formatPercent, makeOutcome, makeRunName } from "./run_words.js";
import { makeError, makePart, makeScores, makeWords } from "./sample_pane.js";
import { formatCount, wordsOf } from "./text.js";

/** @import { RunView } from "./run_view.js" */
/** @import { GridSlot } from "./row_grid.js" */
/** @import { PairRow } from "./run_model.js" */

const CHANGE_MARKS = new Map([["better", "▲"], ["worse", "▼"], ["same", "="], ["only first", "◧"], ["only second", "◨"],
  ["no answer", "?"]]);

/** The view of two runs. */
export class PairPage {
  /** @param {RunView} view @param {number} first @param {number} second */
  constructor(view, first, second) {
    this.view = view;
    this.numbers = [first, second];
    this.sources = this.numbers.map((number) => view.place.openRun(number));
    /** @type {RunModel[]} */
    this.models = [];
    /** @type {PairRow[]} */
    this.rows = [];
    this.change = "";
    this.words = "";
    this.wanted = "";
    this.said = make("div", { class: "pair-said" });
    this.chips = make("div", { class: "outcomes", role: "group", "aria-label": "What changed" });
    this.text = make("input", {
      type: "search", class: "filter", placeholder: "Filter by text  /", "aria-label": "Filter samples by text",
      autocomplete: "off", spellcheck: "false", maxlength: 200,
    });
    this.text.addEventListener("input", () => this.draw());
    this.count = make("span", { class: "count", role: "status" });
    this.grid = new RowGrid({
      name: "pairs", label: "Samples of both runs",
      columns: [
        { name: "change", words: "Change" }, { name: "sample", words: "Sample" }, { name: "before", words: "First run" },
        { name: "after", words: "Second run" }, { name: "input", words: "Input" },
      ],
      fill: (slot, item) => this.#fill(slot, item),
      open: (item, isEntered) => {
        this.isEntered = isEntered;
        this.view.go(["pair", ...this.numbers, "sample", item.id]);
      },
    });
    this.title = make("h2", { tabindex: -1 });
    this.body = make("div", { class: "content", tabindex: 0, role: "group", "aria-label": "Task and answers" });
    const buttons = make("div", { class: "pane-buttons" },
      makeButton("↑", () => this.grid.step(-1), { "aria-label": "Previous sample (k)" }),
      makeButton("↓", () => this.grid.step(1), { "aria-label": "Next sample (j)" }),
      makeButton("✕", () => this.close(), { "aria-label": "Close (Esc)", class: "close" }));
    this.detail = make("section", { class: "detail pane", "aria-label": "Both answers", hidden: true },
      make("div", { class: "pane-head" }, makeButton("← Samples", () => this.close(), { class: "back" }),
        make("div", { class: "titles" }, this.title), buttons), this.body);
    this.panes = make("div", { class: "run-panes pair-panes" },
      make("section", { class: "pane list-pane", "aria-label": "Samples" },
        make("div", { class: "tools" }, this.text, this.count), this.grid.element), this.detail);
    this.element = make("main", { class: "run-page" }, make("p", { class: "empty", role: "status" }, "Reading the runs…"));
  }

  async open() {
    const [first, second] = this.numbers;
    const [one, other, said] = await Promise.all([
      ...this.sources.map((source) => source.ask("snapshot", {})), this.view.place.pair(first, second),
    ]);
    this.models = [new RunModel(one), new RunModel(other)];
    this.rows = pairSamples(this.models[0], this.models[1]);
    this.#say(said);
    this.element.replaceChildren(this.said, this.panes);
    this.view.tellPair(this.models.map(({ head }) => head));
    this.draw();
    this.measure(this.view.isNarrow);
    this.#showWanted();
  }

  end() {
    for (const source of this.sources) source.close();
  }

  /** @param {import("./source_runs.js").PairWords} said */
  #say(said) {
    const names = this.models.map(({ head }, place) => make("p", { class: "pair-name" },
      make("b", {}, place ? "Second: " : "First: "),
      makePlaceLink(["run", this.numbers[place]], `${head.suite} · ${head.model}`),
      ` — ${formatPercent(head.rate.value)} of ${formatCount(head.scored)} answers, coverage ${formatPercent(head.coverage)}`));
    const parts = [...names];
    if (said.why_not) parts.push(make("p", { class: "fault" }, makeForeign(said.why_not)));
    const [heads, ...rows] = said.table;
    if (heads) {
      parts.push(make("details", { class: "about", open: true }, make("summary", {}, "Difference, second minus first"),
        makeTextTable("Difference", heads, rows)));
    }
    if (said.differences.length) {
      const lines = said.differences.map((each) => make("li", {}, makeForeign(each)));
      parts.push(make("details", { class: "about" },
        make("summary", {}, `What differs besides the scores (${formatCount(lines.length)})`), make("ul", {}, ...lines)));
    }
    this.said.replaceChildren(...parts, this.chips);
  }

  draw() {
    const words = this.text.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const isShown = (/** @type {PairRow} */ row) => {
      if (this.change && row.change !== this.change) return false;
      const text = `${row.id}\n${this.#inputOf(row)}`.toLowerCase();
      return words.every((/** @type {string} */ word) => text.includes(word));
    };
    const shown = this.rows.filter(isShown);
    this.#drawChips();
    setText(this.count, `${formatCount(shown.length)} of ${formatCount(this.rows.length)} samples`);
    this.grid.setItems(shown);
  }

  #drawChips() {
    const held = this.view.focusedName();
    const chips = CHANGES.map((change) => {
      const count = this.rows.filter((row) => row.change === change).length;
      if (!count && this.change !== change) return null;
      const chip = makeButton("", () => {
        this.change = this.change === change ? "" : change;
        this.draw();
      }, { class: "chip", name: `change-${change}`, "aria-pressed": String(this.change === change) });
      const word = make("span", { class: "change", "data-change": change.replaceAll(" ", "-") },
        `${CHANGE_MARKS.get(change)} ${change}`);
      chip.append(word, make("b", {}, formatCount(count)));
      return chip;
    });
    this.chips.replaceChildren(...chips.filter((chip) => chip !== null));
    this.view.focusNamed(held);
  }

  /** @param {PairRow} row */
  #inputOf(row) {
    const [place, at] = row.first.length ? [0, row.first[0]] : [1, row.second[0]];
    return this.models[place].get(at, "input");
  }

  /** @param {GridSlot} slot @param {PairRow} item */
  #fill({ cells }, item) {
    const [change, sample, before, after, input] = cells;
    if (!change.firstElementChild) change.append(make("span", { class: "change" }));
    const word = /** @type {HTMLElement} */ (change.firstElementChild);
    word.dataset.change = item.change.replaceAll(" ", "-");
    setText(word, `${CHANGE_MARKS.get(item.change) ?? ""} ${item.change}`);
    fillForeign(sample, item.id);
    this.#fillSide(before, 0, item.first, item.before);
    this.#fillSide(after, 1, item.second, item.after);
    fillForeign(input, this.#inputOf(item));
  }

  /** @param {HTMLElement} cell @param {number} place @param {number[]} rows @param {number|null} share */
  #fillSide(cell, place, rows, share) {
    const model = this.models[place];
    const first = rows[0];
    if (first === undefined) return fillOutcome(cell, "", "not in this run");
    if (rows.length > 1) return fillOutcome(cell, "", share === null ? "no answer" : `${formatPercent(share)} of ${rows.length}`);
    return fillOutcome(cell, model.get(first, "outcome"), model.get(first, "kind"));
  }

  /** @param {string} id */
  show(id) {
    this.wanted = id;
    if (this.models.length) this.#showWanted();
  }

  #showWanted() {
    const item = this.rows.find((row) => row.id === this.wanted);
    this.panes.classList.toggle("reading", item !== undefined);
    this.detail.hidden = item === undefined;
    this.grid.measure(this.view.isNarrow);
    if (!item) return;
    if (!this.grid.items.includes(item)) {
      this.change = "";
      this.text.value = "";
      this.draw();
    }
    this.grid.choose(item);
    this.#showBoth(item);
  }

  /** @param {PairRow} item */
  async #showBoth(item) {
    this.title.replaceChildren(makeForeign(item.id));
    if (this.isEntered ?? true) this.title.focus();
    this.isEntered = true;
    const read = async (/** @type {number} */ place, /** @type {number[]} */ rows) =>
      Promise.all(rows.slice(0, 4).map((row) => this.sources[place].ask("sample", { row })));
    try {
      const both = await Promise.all([read(0, item.first), read(1, item.second)]);
      if (this.wanted !== item.id) return;
      const task = both.flat()[0];
      const sides = both.map((contents, place) => this.#makeSide(place, contents));
      const parts = [makePart("Input", makeWords(task?.input)), makePart("Target", makeWords(task?.target)),
        make("div", { class: "sides" }, ...sides)];
      this.body.replaceChildren(...parts.filter((part) => part !== null));
      this.body.scrollTop = 0;
    } catch (error) {
      this.body.replaceChildren(make("p", { class: "fault", role: "alert" }, wordsOf(error)));
    }
  }

  /** @param {number} place @param {any[]} contents */
  #makeSide(place, contents) {
    const blocks = contents.flatMap((content) => [
      make("p", { class: "under-title" }, makeOutcome(content.outcome), " ",
        makePlaceLink(["run", this.numbers[place], "sample", content.id, content.epoch],
          content.epochs.length > 1 ? `open epoch ${content.epoch}` : "open with its tree")),
      makeError(content), makePart("Answer", makeWords(content.output)), makePart("Scores", makeScores(content)),
    ].filter((part) => part !== null));
    return make("section", { class: "side", "aria-label": place ? "Second run" : "First run" },
      make("h3", {}, place ? "Second: " : "First: ", makeRunName(this.models[place].head)),
      ...(blocks.length ? blocks : [make("p", { class: "empty" }, "The sample is not in this run.")]));
  }

  close() {
    this.view.go(["pair", ...this.numbers]);
    requestAnimationFrame(() => this.grid.element.focus());
  }

  /** @param {boolean} isNarrow */
  measure(isNarrow) {
    this.grid.measure(isNarrow);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const isReading = !this.detail.hidden;
    if (event.key === "/") this.text.focus();
    else if (event.key === "j" && isReading) this.grid.step(1);
    else if (event.key === "k" && isReading) this.grid.step(-1);
    else if (event.key === "Escape" && isReading) this.close();
    else return false;
    return true;
  }
}

/** @param {string} label @param {string[]} heads @param {string[][]} rows */
function makeTextTable(label, heads, rows) {
  const lines = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, makeForeign(cell)))));
  return make("div", { class: "table", tabindex: 0, role: "region", "aria-label": label }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, makeForeign(head))))),
    make("tbody", {}, ...lines)));
}
