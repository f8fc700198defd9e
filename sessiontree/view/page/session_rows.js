/** The sessions of a tree as rows; only rows in sight are in the document. */

import { makeButton, make, setText } from "./elements.js";
import { COLUMN_NAMES, fillRow, makeHeader, makeSlot } from "./session_row.js";
import { formatNumber } from "./text.js";
import { VisibleRows } from "./visible_rows.js";

/** @import { Desk } from "./session_tree.js" */
/** @import { Line } from "./visible_rows.js" */
/** @import { Slot } from "./session_row.js" */

const ROW_PX = 30;
const NARROW_ROW_PX = 50;
const HEADER_PX = 26;
const SPARE_ROWS = 4;
const TYPING_PAUSE_MS = 700;
const GROUPS = [
  ["all", "All"], ["working", "Working"], ["waiting", "Waiting"], ["failed", "Failed"],
  ["troubled", "With failures"], ["ended", "Completed or cancelled"], ["live", "Live"],
];

/** The list, its filter and its keys. */
export class RowsView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.view = new VisibleRows(desk.model);
    this.shape = desk.model.shape;
    this.rowPx = ROW_PX;
    this.active = desk.model.rows.length ? 0 : -1;
    this.first = 0;
    this.height = 600;
    this.typed = "";
    this.typedAt = 0;
    /** @type {Slot[]} */
    this.slots = [];
    this.text = make("input", {
      type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter sessions by text",
      autocomplete: "off", spellcheck: "false", maxlength: 200,
    });
    this.group = make("select", { "aria-label": "Filter sessions by state" });
    for (const [value, words] of GROUPS) this.group.append(make("option", { value }, words));
    this.kind = make("select", { "aria-label": "Filter sessions by kind" });
    this.count = make("span", { class: "count", role: "status" });
    this.next = makeButton("", () => this.goToFailure(), { class: "failure", title: "Next failure (Shift-N)" });
    this.fold = makeButton("Fold all", () => this.foldAll(), { title: "Fold or open all (*)" });
    this.body = make("div", { role: "rowgroup", class: "lines" });
    this.grid = make("div", {
      role: "treegrid", class: "grid", tabindex: 0, "aria-label": "Sessions", "aria-colcount": COLUMN_NAMES.length,
    });
    this.space = make("div", { class: "space", role: "presentation" }, this.body);
    this.grid.append(makeHeader(), this.space);
    this.empty = make("p", { class: "empty", hidden: true }, "No session matches the filter.");
    this.element = make("section", { class: "rows pane", "aria-label": "Tree" },
      make("div", { class: "tools" }, this.text, this.group, this.kind, this.next, this.fold, this.count),
      this.empty, this.grid);
    this.#listen();
    this.rebuild();
  }

  #listen() {
    const filter = () => {
      this.view.text = this.text.value.trim();
      this.view.group = this.group.value;
      this.view.kind = this.kind.value;
      this.rebuild();
    };
    for (const input of [this.text, this.group, this.kind]) input.addEventListener("input", filter);
    this.text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && this.text.value.trim()) this.desk.search(this.text.value.trim());
      if (event.key === "ArrowDown") this.grid.focus();
      if (event.key === "Escape") {
        this.text.value = "";
        filter();
        this.grid.focus();
      }
    });
    this.grid.addEventListener("scroll", () => this.draw(), { passive: true });
    this.grid.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#press(event));
    this.body.addEventListener("click", (/** @type {MouseEvent} */ event) => this.#click(event));
    this.body.addEventListener("contextmenu", (/** @type {MouseEvent} */ event) => {
      const index = this.#indexAt(event);
      if (index < 0) return;
      event.preventDefault();
      this.moveTo(index);
      this.desk.openMenu(this.activePath(), this.#activeElement() ?? this.grid);
    });
  }

  /** Shows another model: the tree at another fact, or after a gap. */
  setModel() {
    const { folded, spread, text, group, kind } = this.view;
    this.view = new VisibleRows(this.desk.model);
    Object.assign(this.view, { folded, spread, text, group, kind });
    if (this.active >= this.desk.model.rows.length) this.active = this.desk.model.rows.length - 1;
    if (this.active < 0 && this.desk.model.rows.length) this.active = 0;
    this.rebuild();
  }

  /** Makes the lines anew, and draws. */
  rebuild() {
    this.view.build();
    this.shape = this.desk.model.shape;
    this.#fillKinds();
    this.draw(true);
  }

  /** Draws after a delta: the lines are made anew only if rows came, states are filtered or repeats may form. */
  refresh() {
    const isFoldable = this.view.isFiltered || this.desk.model.rows.length < 2000;
    if (this.shape !== this.desk.model.shape || isFoldable) this.rebuild();
    else this.draw(true);
  }

  #fillKinds() {
    const kinds = [...new Set(this.desk.model.rows.map((_, row) => this.desk.model.get(row, "kind")))].sort();
    const known = [...this.kind.options].slice(1).map((option) => option.value);
    if (kinds.join("\n") === known.join("\n") && this.kind.options.length) return;
    this.kind.replaceChildren(make("option", { value: "" }, "All kinds"));
    for (const kind of kinds) this.kind.append(make("option", { value: kind }, kind));
    this.kind.value = this.view.kind;
  }

  /** @param {boolean} isNarrow Measures the place of the list; it is not asked for at every draw. */
  setNarrow(isNarrow) {
    this.rowPx = isNarrow ? NARROW_ROW_PX : ROW_PX;
    this.height = this.grid.clientHeight || this.height;
    this.draw(true);
  }

  /** @param {boolean} [isChanged] Whether rows in sight may have changed. */
  draw(isChanged = false) {
    const { lines } = this.view;
    const most = Math.ceil(this.height / this.rowPx) + 2 * SPARE_ROWS;
    const top = Math.max(0, Math.floor(this.grid.scrollTop / this.rowPx) - SPARE_ROWS);
    const first = Math.max(0, Math.min(top, lines.length - most));
    const number = Math.min(most, lines.length - first);
    const step = first - this.first;
    const isKept = !isChanged && number === this.slots.length;
    if (isKept && Math.abs(step) < SPARE_ROWS / 2) return;
    this.first = first;
    if (isKept && Math.abs(step) < number) {
      this.#rotate(step);
    } else {
      this.#resize(number);
      for (let index = 0; index < number; index += 1) this.#fill(index);
      this.#tellState();
    }
    const element = this.#activeElement();
    if (element) this.grid.setAttribute("aria-activedescendant", element.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  /** @param {number} step Reuses the rows that left at one end for those that come at the other. */
  #rotate(step) {
    for (let count = 0; count < Math.abs(step); count += 1) {
      const slot = /** @type {Slot} */ (step > 0 ? this.slots.shift() : this.slots.pop());
      if (step > 0) this.slots.push(slot);
      else this.slots.unshift(slot);
      if (step > 0) this.body.append(slot.element);
      else this.body.prepend(slot.element);
    }
    const begin = step > 0 ? this.slots.length - step : 0;
    for (let count = 0; count < Math.abs(step); count += 1) this.#fill(begin + count);
  }

  /** @param {number} number */
  #resize(number) {
    while (this.slots.length < number) {
      const slot = makeSlot();
      this.slots.push(slot);
      this.body.append(slot.element);
    }
    while (this.slots.length > number) this.slots.pop()?.element.remove();
    this.space.style.setProperty("height", `${this.view.lines.length * this.rowPx}px`);
  }

  /** @param {number} index Fills the row at a place among those in the document. */
  #fill(index) {
    const place = this.first + index;
    const slot = this.slots[index];
    slot.element.style.setProperty("transform", `translateY(${place * this.rowPx}px)`);
    fillRow(slot, this.view.lines[place], place, { desk: this.desk, view: this.view, active: this.active });
  }

  #tellState() {
    const { lines, matches } = this.view;
    const model = this.desk.model;
    const failed = model.roots.reduce((sum, root) => sum + model.sums[root].failed, 0);
    const failures = model.roots.reduce((sum, root) => sum + model.sums[root].failures, 0);
    this.grid.setAttribute("aria-rowcount", String(lines.length + 1));
    this.empty.hidden = lines.length > 0;
    setText(this.count, this.view.isFiltered ? `${formatNumber(matches, "match", "matches")}` : "");
    this.next.hidden = failed + failures === 0;
    setText(this.next, failed ? `✕ Next of ${failed} failed` : `✕ Next of ${formatNumber(failures, "failed call")}`);
    setText(this.fold, this.view.folded.size ? "Open all" : "Fold all");
  }

  #activeElement() {
    return this.slots[this.view.indexOf(this.active) - this.first]?.element;
  }

  /** @param {Event} event */
  #indexAt(event) {
    const element = event.target instanceof Element ? event.target.closest("[role=row]") : null;
    const index = this.slots.findIndex((slot) => slot.element === element);
    return index < 0 ? -1 : index + this.first;
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const index = this.#indexAt(event);
    if (index < 0) return;
    const target = /** @type {Element} */ (event.target);
    const line = this.view.lines[index];
    this.moveTo(index);
    if (line.hides || target.closest(".fold")) this.#toggle(line);
    else if (target.closest(".menu-button")) this.desk.openMenu(this.activePath(), target);
    else this.desk.show(this.activePath());
  }

  /** @param {Line} line */
  #toggle(line) {
    if (line.hides) this.view.spread.add(line.row);
    else if (this.view.folded.has(line.row)) this.view.folded.delete(line.row);
    else if (this.desk.model.children[line.row].length) this.view.folded.add(line.row);
    this.rebuild();
  }

  foldAll() {
    this.view.foldAll(this.view.folded.size === 0);
    this.draw(true);
    this.moveTo(Math.max(0, this.view.indexOf(this.active)));
  }

  activePath() {
    return this.active < 0 ? "" : this.desk.model.get(this.active, "path");
  }

  /** @param {number} index Makes the line at an index the active one, and brings it into sight. */
  moveTo(index) {
    const line = this.view.lines[index];
    if (line === undefined) return;
    this.active = line.row;
    const header = this.rowPx === ROW_PX ? HEADER_PX : 0;
    const top = index * this.rowPx;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    const bottom = top + this.rowPx + header - this.grid.clientHeight;
    if (bottom > this.grid.scrollTop) this.grid.scrollTop = bottom;
    this.draw(true);
  }

  /** @param {number} row Shows a row wherever it is. */
  reveal(row) {
    this.view.reveal(row);
    this.text.value = this.view.text;
    this.group.value = this.view.group;
    this.kind.value = this.view.kind;
    this.draw(true);
    this.moveTo(this.view.indexOf(row));
  }

  /** Goes to the next session that failed, opening the path to it. */
  goToFailure() {
    const row = this.desk.model.nextFailed(this.active < 0 ? null : this.active);
    if (row === null) return this.desk.say("No session failed.");
    this.reveal(row);
    this.desk.show(this.activePath());
    return this.desk.say(`Failed: ${this.activePath()}`);
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.grid) return;
    const index = this.view.indexOf(this.active);
    const line = this.view.lines[index];
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.rowPx) - 2);
    const last = this.view.lines.length - 1;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowDown: () => this.#go(Math.min(last, index + 1)), ArrowUp: () => this.#go(Math.max(0, index - 1)),
      PageDown: () => this.#go(Math.min(last, index + page)), PageUp: () => this.#go(Math.max(0, index - page)),
      Home: () => this.#go(0), End: () => this.#go(last),
      ArrowRight: () => this.#unfold(line, index), ArrowLeft: () => this.#foldOrRise(line),
      Enter: () => (line?.hides ? this.#toggle(line) : this.desk.show(this.activePath(), true)),
      "*": () => this.foldAll(), N: () => this.goToFailure(),
      S: () => this.desk.act("steer", this.activePath()), I: () => this.desk.act("interrupt", this.activePath()),
      X: () => this.desk.act("cancel", this.activePath()), ContextMenu: () => this.#menu(),
      ".": () => this.#menu(), F10: () => event.shiftKey && this.#menu(),
    };
    if (Object.hasOwn(keys, event.key)) keys[event.key]();
    else if (event.key.length === 1 && /[\p{Ll}\p{N}_-]/u.test(event.key)) this.#typeAhead(event.key, index);
    else return;
    event.preventDefault();
  }

  /** @param {number} index */
  #go(index) {
    this.moveTo(index);
    this.desk.glance(this.activePath());
  }

  #menu() {
    this.desk.openMenu(this.activePath(), this.#activeElement() ?? this.grid);
  }

  /** @param {Line|undefined} line @param {number} index */
  #unfold(line, index) {
    if (line === undefined) return;
    if (line.hides || (this.desk.model.children[line.row].length && !this.view.isOpen(line.row))) this.#toggle(line);
    else if (this.desk.model.children[line.row].length) this.#go(index + 1);
  }

  /** @param {Line|undefined} line */
  #foldOrRise(line) {
    if (line === undefined) return;
    const isFoldable = this.view.isOpen(line.row) && !this.view.isFiltered && !line.hides;
    const parent = this.desk.model.parentOf(line.row);
    if (isFoldable) this.#toggle(line);
    else if (parent !== null) this.#go(this.view.indexOf(parent));
  }

  /** @param {string} letter @param {number} index */
  #typeAhead(letter, index) {
    const now = performance.now();
    this.typed = now - this.typedAt > TYPING_PAUSE_MS ? letter : this.typed + letter;
    this.typedAt = now;
    const { lines } = this.view;
    const start = this.typed.length > 1 ? index : index + 1;
    for (let step = 0; step < lines.length; step += 1) {
      const at = (start + step) % lines.length;
      const label = this.desk.model.get(lines[at].row, "label").toLowerCase();
      if (label.startsWith(this.typed)) return this.#go(at);
    }
    return undefined;
  }
}
