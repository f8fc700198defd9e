/** One row of the list: its elements are made once and filled with whichever session is in sight. */

import { make, makeShape, setText } from "./elements.js";
import { isEnded } from "./model.js";
import { formatBrief, formatCost, formatCount, formatNumber, formatShare, formatTokens, glyphOf } from "./text.js";

/** @import { Desk } from "./session_tree.js" */
/** @import { Line, VisibleRows } from "./visible_rows.js" */

/**
 * @typedef {{element: HTMLElement, rails: SVGElement, path: SVGElement, fold: HTMLElement, label: HTMLElement,
 *   kind: HTMLElement, state: HTMLElement, glyph: HTMLElement, word: HTMLElement, why: HTMLElement,
 *   tokens: HTMLElement, cost: HTMLElement, time: HTMLElement, menu: HTMLElement, railText: string}} Slot
 * @typedef {{desk: Desk, view: VisibleRows, active: number}} Look
 */

const MOST_RAILS = 14;

export const COLUMN_NAMES = ["Session", "State", "Tokens", "Cost", "Time", "Actions"];

/** Makes the row of column headers. */
export function makeHeader() {
  const header = make("div", { role: "row", class: "row header", "aria-rowindex": 1 });
  for (const name of COLUMN_NAMES) {
    const words = name === "Actions" ? make("span", { class: "unseen" }, name) : name;
    header.append(make("span", { role: "columnheader", class: `cell ${name.toLowerCase()}` }, words));
  }
  return header;
}

/** @returns {Slot} */
export function makeSlot() {
  const cell = (/** @type {string} */ name, /** @type {Node[]} */ ...parts) =>
    make("div", { role: "gridcell", class: `cell ${name}` }, ...parts);
  const path = makeShape("path");
  const rails = makeShape("svg", { class: "rails", height: 50, "aria-hidden": "true" }, path);
  const fold = make("span", { class: "fold", "aria-hidden": "true" });
  const label = make("bdi", { class: "label" });
  const kind = make("span", { class: "kind" });
  const glyph = make("span", { class: "glyph", "aria-hidden": "true" });
  const word = make("span", {});
  const state = make("span", { class: "state" }, glyph, word);
  const why = make("bdi", { class: "why" });
  const [tokens, cost, time] = [cell("tokens"), cell("cost"), cell("time")];
  const menu = make("span", { class: "menu-button", "aria-hidden": "true", title: "Actions (.)" }, "⋯");
  const name = make("span", { class: "name-line" }, label, kind);
  const element = make("div", { role: "row", class: "row" },
    cell("session", rails, fold, name), cell("state-cell", state, why), tokens, cost, time,
    cell("actions", menu));
  return { element, rails, path, fold, label, kind, state, glyph, word, why, tokens, cost, time, menu, railText: "" };
}

/**
 * Fills a row with a session, or with a run of sessions alike.
 * @param {Slot} slot
 * @param {Line} line
 * @param {number} index
 * @param {Look} look
 */
export function fillRow(slot, line, index, look) {
  const { desk, view } = look;
  const { model } = desk;
  const { row, hides } = line;
  const state = model.get(row, "state");
  const path = model.get(row, "path");
  fillPlace(slot, line, index, look);
  fillRails(slot, line, desk.isNarrow);
  const below = model.children[row].length;
  setText(slot.fold, hides ? "+" : below ? (view.isOpen(row) ? "▾" : "▸") : "");
  setText(slot.label, model.get(row, "label") || path);
  setTitle(slot.label, path);
  const kind = model.get(row, "kind");
  setText(slot.kind, hides ? `${formatCount(hides)} alike` : kind === path ? "" : kind);
  slot.kind.classList.toggle("alike", hides > 0);
  slot.state.dataset.state = state.replaceAll(" ", "-");
  setText(slot.glyph, glyphOf(state));
  setText(slot.word, hides ? "all completed" : state);
  setText(slot.why, hides ? "" : reasonOf(desk, row, state));
  setTitle(slot.why, slot.why.textContent ?? "");
  slot.menu.hidden = hides > 0;
  fillSums(slot, line, desk);
}

/**
 * @param {Slot} slot
 * @param {Line} line
 * @param {number} index
 * @param {Look} look
 */
function fillPlace({ element }, line, index, { desk, view, active }) {
  const { row, hides } = line;
  const below = desk.model.children[row].length;
  element.id = `row-${row}`;
  setAttribute(element, "aria-rowindex", String(index + 2));
  setAttribute(element, "aria-level", String(line.depth + 1));
  setAttribute(element, "aria-posinset", String(line.place));
  setAttribute(element, "aria-setsize", String(line.family));
  setAttribute(element, "aria-expanded", hides ? "false" : below ? String(view.isOpen(row)) : null);
  setAttribute(element, "aria-selected", String(row === active));
  element.classList.toggle("chosen", desk.model.get(row, "path") === desk.chosen);
  element.classList.toggle("faint", !line.isMatch);
}

/**
 * @param {Slot} slot
 * @param {Line} line
 * @param {Desk} desk
 */
function fillSums(slot, { row, hides }, { model, now }) {
  const sums = model.sums[row];
  const isPartly = sums.unpriced > 0 && sums.nanos > 0;
  setText(slot.tokens, hides ? "" : formatTokens(sums.tokens));
  setText(slot.cost, hides ? "" : formatCost(model.costBelow(row)) + (isPartly ? "+" : ""));
  setTitle(slot.tokens, `with all below; itself ${formatTokens(model.get(row, "tokens"))}`);
  setTitle(slot.cost, `with all below; itself ${formatCost(model.get(row, "cost_usd"))}`);
  const began = model.get(row, "began_ms");
  setText(slot.time, hides || !began ? "" : formatBrief((model.get(row, "ended_ms") ?? now()) - began));
}

/**
 * Draws the lines that lead from a row to its parent as one path: an element a level would cost too much.
 * @param {Slot} slot
 * @param {Line} line
 * @param {boolean} isNarrow
 */
function fillRails(slot, { rails, depth }, isNarrow) {
  const shown = rails.slice(1).slice(-MOST_RAILS);
  const railText = `${isNarrow}:${depth}:${shown.map((goesOn) => (goesOn ? "1" : "0")).join("")}`;
  if (railText === slot.railText) return;
  slot.railText = railText;
  const [step, height, middle] = isNarrow ? [10, 50, 15] : [15, 30, 15];
  slot.element.style.setProperty("--indent", `${shown.length * step}px`);
  const strokes = shown.map((goesOn, place) => {
    const x = place * step + step / 2 + 0.5;
    const isOwn = place === shown.length - 1;
    const down = goesOn ? `M${x} 0V${height}` : isOwn ? `M${x} 0V${middle}` : "";
    return isOwn ? `${down}M${x} ${middle + 0.5}H${x + step / 2}` : down;
  });
  setAttribute(slot.rails, "width", String(shown.length * step));
  setAttribute(slot.path, "d", strokes.join(""));
}

/**
 * @param {Desk} desk
 * @param {number} row
 * @param {string} state
 */
function reasonOf({ model }, row, state) {
  const words = [model.get(row, "why").replace(/^approval of /, ""), model.get(row, "call")].filter(Boolean);
  const failures = model.get(row, "failures");
  if (isEnded(state) && failures) words.push(formatNumber(failures, "failed call"));
  const budget = model.get(row, "budget");
  if (budget !== null && budget < 0.2 && !isEnded(state)) words.push(`budget ${formatShare(budget)} left`);
  return words.join(" · ");
}

/**
 * @param {HTMLElement} element
 * @param {string} text
 */
function setTitle(element, text) {
  if (element.title !== text) element.title = text;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {string|null} value
 */
function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
