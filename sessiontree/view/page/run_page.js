/** One run: its head, its samples behind a filter, and one of them beside the list. */

import { make } from "./elements.js";
import { fillForeign, RowGrid } from "./row_grid.js";
import { FilterBar } from "./run_filter.js";
import { RunHeadView } from "./run_head.js";
import { isAnswer, RunModel, SampleFilter } from "./run_model.js";
import { formatValue, markOf } from "./run_words.js";
import { SamplePane } from "./sample_pane.js";
import { formatBrief, formatCost, formatCount } from "./text.js";

/** @import { RunView } from "./run_view.js" */
/** @import { GridSlot } from "./row_grid.js" */
/** @import { RunNews } from "./run_model.js" */

const OFFER_EVERY_MS = 2000;
const SORT_COLUMNS = new Map([
  ["outcome", "outcome"], ["sample", "position"], ["score", "score"], ["time", "wall_ms"], ["cost", "cost_usd"],
]);

/** The view of a run; it follows the run as long as it is shown. */
export class RunPage {
  /** @param {RunView} view @param {number} number */
  constructor(view, number) {
    this.view = view;
    this.number = number;
    this.source = view.place.openRun(number);
    /** @type {RunModel|null} */
    this.model = null;
    this.filter = new SampleFilter();
    this.offeredAt = 0;
    this.isDue = false;
    this.isRestoring = false;
    this.isClosed = false;
    this.wanted = ["", "1"];
    this.bar = new FilterBar(this.filter, () => this.draw());
    this.head = new RunHeadView((outcome) => {
      this.filter.outcome = this.filter.outcome === outcome ? "" : outcome;
      this.draw();
    });
    this.grid = new RowGrid({
      name: "samples", label: "Samples",
      columns: [
        { name: "outcome", words: "Outcome", isSorted: true }, { name: "sample", words: "Sample", isSorted: true },
        { name: "input", words: "Input" }, { name: "answer", words: "Answer" },
        { name: "score", words: "Score", isSorted: true, isNumber: true },
        { name: "time", words: "Time", isSorted: true, isNumber: true },
        { name: "cost", words: "Cost", isSorted: true, isNumber: true },
      ],
      fill: (slot, row) => this.#fill(slot, row),
      open: (row, isEntered) => this.#go(row, isEntered),
      sort: (name) => this.#sort(name),
    });
    this.pane = new SamplePane(view.place, number, this.source, {
      close: () => this.close(), step: (step) => this.grid.step(step), widen: () => this.widen(),
    });
    this.empty = make("p", { class: "empty", hidden: true }, "No sample matches the filter.");
    const list = make("section", { class: "pane list-pane", "aria-label": "Samples" },
      this.bar.element, this.empty, this.grid.element);
    this.panes = make("div", { class: "run-panes" }, list, this.pane.element);
    this.element = make("main", { class: "run-page" }, make("p", { class: "empty", role: "status" }, "Reading the run…"));
  }

  async open() {
    const snapshot = await this.source.open((/** @type {RunNews} */ news) => !this.isClosed && this.#take(news));
    this.model = new RunModel(snapshot);
    this.element.replaceChildren(this.head.element, this.panes);
    this.draw();
    this.measure(this.view.isNarrow);
    this.#showWanted();
  }

  end() {
    this.isClosed = true;
    this.source.close();
  }

  /** @param {RunNews} news */
  #take(news) {
    if (news.kind === "status") return this.view.note(news.status);
    if (!this.model) return undefined; // the snapshot that is under way has it
    if (news.kind === "snapshot") this.model = new RunModel(news);
    else if (this.model.apply(news) === "gap") this.#restore();
    return this.#drawSoon();
  }

  async #restore() {
    if (this.isRestoring) return;
    this.isRestoring = true;
    try {
      this.model = new RunModel(await this.source.ask("snapshot", {}));
      this.#drawSoon();
    } finally {
      this.isRestoring = false;
    }
  }

  #drawSoon() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
      const row = this.pane.row;
      if (row >= 0 && this.model) this.pane.refresh(this.model.get(row, "attempts"));
    });
  }

  draw() {
    const { model, filter } = this;
    if (!model) return;
    const now = performance.now();
    if (!this.offeredAt || now - this.offeredAt > OFFER_EVERY_MS) {
      this.bar.offer(model);
      this.offeredAt = now;
    }
    const rows = filter.rowsOf(model);
    this.head.refresh(model.head, filter.outcome);
    this.bar.refresh(rows.length, model.rows.length);
    this.grid.setItems(rows);
    const column = [...SORT_COLUMNS].find(([, order]) => order === filter.order)?.[0] ?? "";
    this.grid.tellOrder(column, filter.isDescending);
    this.empty.hidden = rows.length > 0;
    this.view.tellRun(model.head);
  }

  /** @param {string} name */
  #sort(name) {
    const order = /** @type {any} */ (SORT_COLUMNS.get(name));
    const isFromTop = order !== "position" && order !== "outcome";
    this.filter.isDescending = this.filter.order === order ? !this.filter.isDescending : isFromTop;
    this.filter.order = order;
    this.draw();
  }

  /** @param {GridSlot} slot @param {number} row */
  #fill({ element, cells }, row) {
    const model = /** @type {RunModel} */ (this.model);
    const [outcome, sample, input, answer, score, time, cost] = cells;
    const became = model.get(row, "outcome");
    const kind = model.get(row, "kind");
    element.dataset.outcome = became.replaceAll(" ", "-");
    fillOutcome(outcome, became, kind);
    fillForeign(sample, this.#nameOf(row));
    fillForeign(input, model.get(row, "input"));
    fillForeign(answer, model.get(row, isAnswer(became) ? "answer" : "why"));
    const values = model.get(row, "values").filter((/** @type {number|null} */ value) => value !== null);
    fillForeign(score, values.map(formatValue).join(" · "));
    const took = model.get(row, "wall_ms");
    fillForeign(time, took === null ? "" : formatTook(took));
    const spent = model.get(row, "cost_usd");
    fillForeign(cost, spent === null ? "" : formatCost(spent));
  }

  /** @param {number} row */
  #nameOf(row) {
    const model = /** @type {RunModel} */ (this.model);
    const epoch = model.get(row, "epoch");
    return epoch > 1 ? `${model.get(row, "id")} · ${formatCount(epoch)}` : model.get(row, "id");
  }

  /** @param {number} row @param {boolean} isEntered Goes to the place of a sample. */
  #go(row, isEntered) {
    const model = /** @type {RunModel} */ (this.model);
    this.isEntered = isEntered;
    this.view.go(["run", this.number, "sample", model.get(row, "id"), model.get(row, "epoch")]);
  }

  /** @param {string} id @param {string} epoch Shows the sample that the address names; empty = none. */
  show(id, epoch) {
    this.wanted = [id, epoch];
    if (this.model) this.#showWanted();
  }

  #showWanted() {
    const [id, epoch] = this.wanted;
    const model = /** @type {RunModel} */ (this.model);
    this.panes.classList.toggle("reading", id !== "");
    this.head.shorten(id !== "");
    if (!id) {
      this.pane.close();
      this.panes.classList.remove("widened");
      this.grid.chosen = null;
      return this.grid.measure(this.view.isNarrow);
    }
    const row = model.rowOf(id, epoch || 1);
    if (row === undefined) {
      this.head.shorten(false);
      this.panes.classList.remove("reading");
      return this.view.say(`The run has no sample ${id} with epoch ${epoch || 1}.`);
    }
    if (!this.grid.items.includes(row)) this.bar.reset();
    this.grid.choose(row);
    this.pane.open(row, this.isEntered ?? true);
    this.isEntered = true;
    return this.grid.measure(this.view.isNarrow);
  }

  close() {
    this.view.go(["run", this.number]);
    requestAnimationFrame(() => this.grid.element.focus());
  }

  widen() {
    this.panes.classList.toggle("widened");
  }

  /** @param {boolean} isNarrow */
  measure(isNarrow) {
    this.grid.measure(isNarrow);
  }

  /** @param {KeyboardEvent} event @returns {boolean} Whether the key was for this view. */
  press(event) {
    const isReading = this.pane.row >= 0;
    if (event.key === "/") this.bar.text.focus();
    else if (event.key === "j" && isReading) this.grid.step(1);
    else if (event.key === "k" && isReading) this.grid.step(-1);
    else if (event.key === "f" && isReading) this.widen();
    else if (event.key === "Escape" && isReading) this.close();
    else if (event.key === "Escape" && this.filter.isSet) this.bar.reset();
    else return false;
    return true;
  }
}

/** @param {HTMLElement} cell @param {string} outcome @param {string} kind */
export function fillOutcome(cell, outcome, kind) {
  if (!cell.firstElementChild) {
    cell.append(make("span", { class: "outcome" }, make("span", { class: "glyph", "aria-hidden": "true" }), make("span")),
      make("bdi", { class: "kind-of" }));
  }
  const [whole, more] = /** @type {HTMLElement[]} */ ([...cell.children]);
  whole.dataset.outcome = outcome.replaceAll(" ", "-");
  whole.children[0].textContent = markOf(outcome);
  whole.children[1].textContent = outcome;
  more.textContent = kind;
}

/** @param {number} ms */
function formatTook(ms) {
  return ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : formatBrief(ms);
}
