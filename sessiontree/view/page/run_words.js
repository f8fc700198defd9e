/** What a page of runs says: rates, coverage, outcomes and dates in words. */

import { make, makeForeign } from "./elements.js";
import { formatCount } from "./text.js";

/** @import { Rate, RunHeadFacts } from "./run_model.js" */

const MARKS = new Map([
  ["passed", "✓"], ["not passed", "✕"], ["infrastructure", "⚠"], ["undecided", "?"], ["running", "●"], ["waiting", "○"],
]);

/** @param {number|null} share From 0 to 1, with one digit after the point. */
export function formatPercent(share) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(1)}\u2009%`;
}

/** @param {Rate} rate Its interval. */
export function formatInterval(rate) {
  if (rate.low === null || rate.high === null) return "";
  return `${(rate.low * 100).toFixed(1)}–${(rate.high * 100).toFixed(1)}\u2009%`;
}

/** @param {number} value A score's value. */
export function formatValue(value) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

/** @param {number|null} ms A moment as a date and a time of day. */
export function formatDate(ms) {
  if (ms === null || ms === undefined) return "not begun";
  const date = new Date(ms);
  const pad = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** @param {string} outcome */
export function makeOutcome(outcome) {
  return make("span", { class: "outcome", "data-outcome": outcome.replaceAll(" ", "-") },
    make("span", { class: "glyph", "aria-hidden": "true" }, markOf(outcome)), outcome);
}

/** @param {string} outcome */
export function markOf(outcome) {
  return MARKS.get(outcome) ?? "·";
}

/** @param {RunHeadFacts} head What the answers are, and what the rest is, in a sentence or two. */
export function sayHead(head) {
  const { counts, scored, total } = head;
  const parts = [scored
    ? `${formatCount(counts.passed)} of ${formatCount(scored)} answers passed.`
    : "Nothing is scored yet."];
  const faults = counts.infrastructure + counts.undecided;
  if (faults) {
    const kinds = (/** @type {string} */ outcome) => {
      const found = head.kinds.filter(([of]) => of === outcome).slice(0, 3);
      return found.length ? ` (${found.map(([, kind, count]) => `${kind} ${formatCount(count)}`).join(", ")})` : "";
    };
    const which = ["infrastructure", "undecided"].filter((each) => counts[each]);
    const told = which.map((each) => `${formatCount(counts[each])} ${each}${kinds(each)}`).join(", ");
    parts.push(`${formatCount(faults)} of ${formatCount(total)} samples have no answer, and are not in the rate: ${told}.`);
  }
  const left = counts.running + counts.waiting;
  if (left) parts.push(`${formatCount(left)} are still to come.`);
  return parts.join(" ");
}

/** @param {RunHeadFacts} head The name of a run: its suite and its model, as an element. */
export function makeRunName(head) {
  const model = head.model ? make("span", { class: "of" }, " · ", makeForeign(head.model)) : null;
  return make("span", { class: "run-name" }, makeForeign(head.suite || "run"), model);
}
