/** A grid of many rows of which only those in sight are in the document; moved through with the keyboard. */

import { make, makeButton, setText } from "./elements.js";

/**
 * @typedef {{name: string, words: string, isSorted?: boolean, isNumber?: boolean}} GridColumn
 * @typedef {{element: HTMLElement, cells: HTMLElement[]}} GridSlot
 * @typedef {{label: string, columns: GridColumn[], fill(slot: GridSlot, item: any): void,
 *   open(item: any, isEntered: boolean): void, sort?: (name: string) => void, name: string}} GridPlan
 * `fill` puts an item into the cells of a row; `open` shows an item, with the focus if it was entered.
 */

const GRID_ROW_PX = 32;
const GRID_NARROW_PX = 58;
const GRID_HEADER_PX = 28;
const GRID_SPARE = 6;
const GRID_GLANCE_MS = 160;

/** The grid; its items are whatever the plan fills rows with. */
export class RowGrid {
  /** @param {GridPlan} plan */
  constructor(plan) {
    this.plan = plan;
    /** @type {any[]} */
    this.items = [];
    this.active = 0;
    /** @type {any} */
    this.chosen = null;
    this.rowPx = GRID_ROW_PX;
    this.height = 600;
    /** @type {GridSlot[]} */
    this.slots = [];
    this.first = 0;
    this.heads = plan.columns.map((column) => this.#makeHead(column));
    this.body = make("div", { role: "rowgroup", class: "lines" });
    this.space = make("div", { class: "space", role: "presentation" }, this.body);
    const header = make("div", { role: "row", class: "line header", "aria-rowindex": 1 }, ...this.heads);
    this.element = make("div", {
      role: "grid", class: `grid ${plan.name}`, tabindex: 0, "aria-label": plan.label,
      "aria-colcount": plan.columns.length,
    }, make("div", { role: "rowgroup", class: "heads" }, header), this.space);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#press(event));
    this.body.addEventListener("click", (/** @type {MouseEvent} */ event) => this.#click(event));
    new ResizeObserver(() => this.#fit()).observe(this.element);
  }

  #fit() {
    this.height = this.element.clientHeight || this.height;
    this.draw();
  }

  /** @param {GridColumn} column */
  #makeHead(column) {
    const { name, words, isSorted, isNumber } = column;
    const inside = isSorted && this.plan.sort
      ? makeButton(words, () => this.plan.sort?.(name), { class: "sort", title: `Sort by ${words.toLowerCase()}` })
      : words;
    return make("div", { role: "columnheader", class: `cell of-${name}${isNumber ? " number" : ""}` }, inside);
  }

  /** @param {string} name @param {boolean} isDescending Says by which column the items are sorted. */
  tellOrder(name, isDescending) {
    this.plan.columns.forEach((column, place) => {
      const isIt = column.name === name;
      if (isIt) this.heads[place].setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else this.heads[place].removeAttribute("aria-sort");
    });
  }

  /** @param {any[]} items Shows other items; the active one stays where it is in them. */
  setItems(items) {
    const held = this.items[this.active];
    this.items = items;
    const at = held === undefined ? -1 : items.indexOf(held);
    this.active = at >= 0 ? at : Math.max(0, Math.min(this.active, items.length - 1));
    this.element.setAttribute("aria-rowcount", String(items.length + 1));
    this.draw();
  }

  /** @param {boolean} isNarrow Whether a row has two lines. */
  measure(isNarrow) {
    this.rowPx = isNarrow ? GRID_NARROW_PX : GRID_ROW_PX;
    this.#fit();
  }

  draw() {
    const most = Math.ceil(this.height / this.rowPx) + 2 * GRID_SPARE;
    const top = Math.max(0, Math.floor(this.element.scrollTop / this.rowPx) - GRID_SPARE);
    this.first = Math.max(0, Math.min(top, this.items.length - most));
    const number = Math.min(most, this.items.length - this.first);
    while (this.slots.length < number) this.#addSlot();
    while (this.slots.length > number) this.slots.pop()?.element.remove();
    this.space.style.setProperty("height", `${this.items.length * this.rowPx}px`);
    this.slots.forEach((slot, index) => this.#fill(slot, this.first + index));
    const active = this.slots[this.active - this.first]?.element;
    if (active) this.element.setAttribute("aria-activedescendant", active.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #addSlot() {
    const cells = this.plan.columns.map(({ name, isNumber }) =>
      make("div", { role: "gridcell", class: `cell of-${name}${isNumber ? " number" : ""}` }));
    const element = make("div", { role: "row", class: "line" }, ...cells);
    this.slots.push({ element, cells });
    this.body.append(element);
  }

  /** @param {GridSlot} slot @param {number} place */
  #fill(slot, place) {
    const item = this.items[place];
    const { element } = slot;
    element.style.setProperty("transform", `translateY(${place * this.rowPx}px)`);
    element.id = `${this.plan.name}-${place}`;
    element.setAttribute("aria-rowindex", String(place + 2));
    element.setAttribute("aria-selected", String(place === this.active));
    element.classList.toggle("chosen", item === this.chosen);
    this.plan.fill(slot, item);
  }

  /** @param {any} item Marks an item as the one that is shown, and brings it into sight. */
  choose(item) {
    this.chosen = item;
    const at = this.items.indexOf(item);
    if (at >= 0) this.moveTo(at);
    else this.draw();
  }

  /** @param {number} place */
  moveTo(place) {
    if (place < 0 || place >= this.items.length) return;
    this.active = place;
    const header = this.rowPx === GRID_ROW_PX ? GRID_HEADER_PX : 0;
    const top = place * this.rowPx;
    const grid = this.element;
    if (top < grid.scrollTop) grid.scrollTop = top;
    const bottom = top + this.rowPx + header - grid.clientHeight;
    if (bottom > grid.scrollTop) grid.scrollTop = bottom;
    this.draw();
  }

  /** @param {number} step Opens the item so many places on. */
  step(step) {
    const place = Math.max(0, Math.min(this.items.length - 1, this.active + step));
    if (!this.items.length) return;
    this.moveTo(place);
    this.#open(false);
  }

  /** @param {boolean} isEntered */
  #open(isEntered) {
    clearTimeout(this.glancing);
    const item = this.items[this.active];
    if (item === undefined) return;
    this.chosen = item;
    this.draw();
    this.plan.open(item, isEntered);
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const element = event.target instanceof Element ? event.target.closest(".line") : null;
    const index = this.slots.findIndex((slot) => slot.element === element);
    if (index < 0) return;
    this.moveTo(this.first + index);
    this.#open(true);
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.element) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowPx) - 2);
    const last = this.items.length - 1;
    const places = /** @type {Record<string, number>} */ ({
      ArrowDown: this.active + 1, ArrowUp: this.active - 1, j: this.active + 1, k: this.active - 1,
      PageDown: this.active + page, PageUp: this.active - page, Home: 0, End: last,
    });
    if (event.key === "Enter") this.#open(true);
    else if (Object.hasOwn(places, event.key)) this.#go(Math.max(0, Math.min(last, places[event.key])));
    else return;
    event.preventDefault();
  }

  /** @param {number} place Moves there; what is shown beside follows when the keys rest, if it is in sight. */
  #go(place) {
    this.moveTo(place);
    clearTimeout(this.glancing);
    if (this.chosen === null || this.rowPx !== GRID_ROW_PX) return;
    this.glancing = setTimeout(() => this.#open(false), GRID_GLANCE_MS);
  }
}

/** @param {HTMLElement} cell @param {string} text Fills a cell with a text of somebody else. */
export function fillForeign(cell, text) {
  const inside = cell.firstElementChild ?? cell.appendChild(make("bdi"));
  setText(inside, text);
  if (cell.title !== text) cell.title = text;
}
