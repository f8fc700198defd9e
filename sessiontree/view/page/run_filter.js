/** The bar by which the samples of a run are filtered: text, outcome, kind, tag, metadata and a score. */

import { make, makeButton, setText } from "./elements.js";
import { countValues, membersOf, OUTCOMES, SIGNS } from "./run_model.js";
import { formatCount, formatNumber } from "./text.js";

/** @import { RunModel, SampleFilter } from "./run_model.js" */

const MOST_CHOICES = 200;

/** The bar; it changes the filter, and tells when it did. */
export class FilterBar {
  /** @param {SampleFilter} filter @param {() => void} onChange */
  constructor(filter, onChange) {
    this.filter = filter;
    this.onChange = onChange;
    this.text = make("input", {
      type: "search", class: "filter", placeholder: "Filter by text  /", "aria-label": "Filter samples by text",
      autocomplete: "off", spellcheck: "false", maxlength: 200,
    });
    this.outcome = make("select", { "aria-label": "Filter by outcome" });
    this.status = make("select", { "aria-label": "Filter by status or kind of failure" });
    this.tag = make("select", { "aria-label": "Filter by tag" });
    this.member = make("select", { "aria-label": "Filter by metadata" });
    this.score = make("select", { "aria-label": "Filter by score" });
    this.sign = make("select", { "aria-label": "How the score compares" });
    this.bound = make("input", { type: "number", class: "bound", "aria-label": "With which value", placeholder: "value" });
    this.bound.step = "any";
    for (const sign of SIGNS) this.sign.append(make("option", { value: sign }, sign));
    this.count = make("span", { class: "count", role: "status" });
    this.clear = makeButton("Clear", () => this.reset(), { class: "link" });
    this.range = make("span", { class: "range" }, this.score, this.sign, this.bound);
    this.more = makeButton("Filters", () => this.#toggle(), { class: "more-filters", "aria-expanded": "false" });
    this.element = make("div", { class: "tools" }, this.text, this.more, this.outcome, this.status, this.tag, this.member,
      this.range, this.count, this.clear);
    for (const input of [this.text, this.outcome, this.status, this.tag, this.member, this.score, this.sign, this.bound]) {
      input.addEventListener("input", () => this.#read());
    }
  }

  /** Shows or hides all but the text, where there is little room. */
  #toggle() {
    const isOpen = this.element.classList.toggle("open");
    this.more.setAttribute("aria-expanded", String(isOpen));
  }

  #read() {
    this.filter.text = this.text.value.trim();
    this.filter.outcome = this.outcome.value;
    this.filter.status = this.status.value;
    this.filter.tag = this.tag.value;
    this.filter.member = this.member.value;
    this.filter.score = this.score.value === "" ? -1 : Number(this.score.value);
    this.filter.sign = this.sign.value;
    this.filter.bound = this.bound.value === "" ? NaN : Number(this.bound.value);
    this.onChange();
  }

  reset() {
    const { order, isDescending } = this.filter;
    Object.assign(this.filter, {
      text: "", outcome: "", status: "", tag: "", member: "", score: -1, bound: NaN, order, isDescending,
    });
    this.onChange();
  }

  /** @param {RunModel} model Offers what the rows have; reads all of them, so it is not called for every change. */
  offer(model) {
    const faults = model.head.counts.infrastructure + model.head.counts.undecided;
    this.#fill(this.outcome, "All outcomes", [
      ...OUTCOMES.filter((name) => model.head.counts[name]).map((name) => [name, name, model.head.counts[name]]),
      ...(faults ? [["faults", "no answer", faults]] : []),
    ], this.filter.outcome);
    const offerCounts = (/** @type {any} */ select, /** @type {string} */ words, /** @type {[string, number][]} */ found,
      /** @type {string} */ chosen) => this.#fill(select, words, found.map(([value, n]) => [value, value, n]), chosen);
    const kinds = countValues(model, (row) => [model.get(row, "kind")].filter(Boolean), MOST_CHOICES);
    offerCounts(this.status, "Any status", kinds, this.filter.status);
    offerCounts(this.tag, "Any tag", countValues(model, (row) => model.get(row, "tags"), MOST_CHOICES), this.filter.tag);
    const members = countValues(model, (row) => membersOf(model, row), MOST_CHOICES).filter(([, n]) => n > 1);
    offerCounts(this.member, "Any metadata", members, this.filter.member);
    this.#fill(this.score, "Score", model.scoreNames.map((name, place) => [String(place), name, 0]),
      this.filter.score < 0 ? "" : String(this.filter.score));
  }

  /** @param {any} select @param {string} words @param {any[][]} choices @param {string} chosen */
  #fill(select, words, choices, chosen) {
    const known = choices.some(([value]) => value === chosen) || !chosen ? choices : [...choices, [chosen, chosen, 0]];
    const told = JSON.stringify(known);
    if (select.dataset.told !== told) {
      select.dataset.told = told;
      select.replaceChildren(make("option", { value: "" }, words), ...known.map(([value, name, count]) =>
        make("option", { value }, count ? `${name} (${formatCount(count)})` : name)));
    }
    select.hidden = known.length === 0;
    select.value = chosen;
  }

  /** @param {number} shown @param {number} total Says how many rows are shown, and shows the filter as it is. */
  refresh(shown, total) {
    const { filter } = this;
    if (this.text.value.trim() !== filter.text) this.text.value = filter.text;
    this.outcome.value = filter.outcome;
    this.status.value = filter.status;
    this.tag.value = filter.tag;
    this.member.value = filter.member;
    this.score.value = filter.score < 0 ? "" : String(filter.score);
    if (Number.isNaN(filter.bound)) this.bound.value = "";
    this.sign.hidden = filter.score < 0;
    this.bound.hidden = filter.score < 0;
    this.range.hidden = this.score.hidden;
    this.clear.hidden = !filter.isSet;
    const all = formatNumber(total, "sample");
    setText(this.count, filter.isSet ? `${formatCount(shown)} of ${all}` : all);
  }
}
