/** All runs of the page: when, with which release, model, settings and tags, and what each came to. */

import { make, makeButton, makeForeign, makePlaceLink, setText } from "./elements.js";
import { formatDate, formatInterval, formatPercent } from "./run_words.js";
import { formatCost, formatCount, formatNumber } from "./text.js";

/** @import { RunView } from "./run_view.js" */
/** @import { RunHeadFacts } from "./run_model.js" */

const LIST_EVERY_MS = 3000;

/** The list; two chosen runs can be put side by side. */
export class RunListPage {
  /** @param {RunView} view */
  constructor(view) {
    this.view = view;
    /** @type {number[]} */
    this.chosen = [];
    this.told = "";
    this.compare = makeButton("", () => this.view.go(["pair", ...this.chosen]), { class: "primary", disabled: true });
    this.matrix = make("div");
    this.list = make("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Runs" });
    this.element = make("main", { class: "run-list" }, this.matrix,
      make("div", { class: "list-head" }, make("h2", {}, "All runs"), this.compare), this.list);
  }

  async open() {
    await this.#read();
    if (this.view.place.isLive) this.timer = setInterval(() => this.#readAgain(), LIST_EVERY_MS);
  }

  end() {
    clearInterval(this.timer);
  }

  async #readAgain() {
    if (document.hidden) return;
    await this.#read().catch(() => this.view.note("reconnecting"));
  }

  async #read() {
    const runs = await this.view.place.list();
    this.view.tellList(runs);
    const told = JSON.stringify(runs);
    if (told === this.told) return;
    this.told = told;
    const held = this.view.focusedName();
    this.matrix.replaceChildren(...makeMatrix(runs));
    this.list.replaceChildren(this.#makeTable(runs));
    this.view.focusNamed(held);
    this.#tell();
  }

  /** @param {RunHeadFacts[]} runs */
  #makeTable(runs) {
    const heads = ["Compare", "Run", "Date", "Pass rate", "Coverage", "No answer", "Cost"];
    const head = make("tr", {}, ...heads.map((words) => make("th", { scope: "col" }, words)));
    return make("table", { class: "runs" }, make("thead", {}, head),
      make("tbody", {}, ...runs.map((run) => this.#makeRow(run))));
  }

  /** @param {RunHeadFacts} run */
  #makeRow(run) {
    const words = `Compare ${run.suite} ${run.model} ${shortPath(run.dir)}`;
    const box = make("input", { type: "checkbox", "aria-label": words, name: `compare-${run.number}` });
    box.checked = this.chosen.includes(run.number);
    box.addEventListener("change", () => this.#choose(run.number, box.checked));
    const faults = run.counts.infrastructure + run.counts.undecided;
    const name = makePlaceLink(["run", run.number], run.suite || "run");
    name.name = `run-${run.number}`;
    const facts = [run.model, run.release, shortPath(run.dir), ...(run.tags ?? [])].filter(Boolean);
    const settings = run.settings.slice(0, 3).map(([key, value]) => `${key}: ${value}`).join("\n");
    return make("tr", {}, make("td", {}, box),
      make("td", { class: "of-run", title: settings }, name, make("span", { class: "facts" }, ...facts.map((each) =>
        make("span", { class: "tag" }, makeForeign(each))))),
      make("td", { class: "when" }, run.is_live ? make("span", { class: "live" }, "● live") : formatDate(run.began_ms)),
      make("td", { class: "figure", "data-name": "pass rate" }, make("b", {}, formatPercent(run.rate.value)), " ",
        make("span", { class: "under" }, formatInterval(run.rate))),
      make("td", { class: `figure ${run.coverage === 1 ? "" : "short"}`, "data-name": "coverage" },
        make("b", {}, formatPercent(run.coverage)), " ",
        make("span", { class: "under" }, `${formatCount(run.scored)} of ${formatCount(run.total)}`)),
      make("td", { class: `figure ${faults ? "faulty" : ""}`, "data-name": "no answer" }, formatCount(faults)),
      make("td", { class: "figure", "data-name": "cost" }, formatCost(run.cost_usd)));
  }

  /** @param {number} number @param {boolean} isChosen */
  #choose(number, isChosen) {
    this.chosen = [...this.chosen.filter((each) => each !== number), ...(isChosen ? [number] : [])].slice(-2);
    for (const box of this.list.querySelectorAll("input")) {
      box.checked = this.chosen.some((each) => box.name === `compare-${each}`);
    }
    this.#tell();
  }

  #tell() {
    this.compare.disabled = this.chosen.length !== 2;
    const missing = 2 - this.chosen.length;
    const wanted = formatNumber(missing, missing === 2 ? "run" : "more run");
    setText(this.compare, missing ? `Compare: choose ${wanted}` : "Compare the two");
  }

  /** @param {boolean} _isNarrow */
  measure(_isNarrow) {}

  /** @param {KeyboardEvent} _event */
  press(_event) {
    return false;
  }
}

/** @param {string} path The end of a path. */
export function shortPath(path) {
  return path.split("/").slice(-2).join("/");
}

/** @param {RunHeadFacts[]} runs Models by suites, if there is more than one of both; the newest run of each pair. */
export function makeMatrix(runs) {
  const suites = [...new Set(runs.map((run) => run.suite))].sort();
  const models = [...new Set(runs.map((run) => run.model))].sort();
  if (suites.length * models.length < 4 || suites.length < 2) return [];
  const rows = models.map((model) => make("tr", {}, make("th", { scope: "row" }, makeForeign(model || "(the suite's)")),
    ...suites.map((suite) => {
      const run = runs.find((each) => each.suite === suite && each.model === model);
      return make("td", { class: "figure" }, ...(run ? makeCell(run) : ["–"]));
    })));
  const heads = [make("th", { scope: "col" }, "Model"),
    ...suites.map((suite) => make("th", { scope: "col" }, makeForeign(suite)))];
  return [make("div", { class: "list-head" }, make("h2", {}, "Models by suites")),
    make("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Models by suites" },
      make("table", { class: "matrix" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)))];
}

/** @param {RunHeadFacts} run */
function makeCell(run) {
  const isWhole = run.coverage === 1;
  const coverage = isWhole ? `${formatCount(run.scored)} answers` : `coverage ${formatPercent(run.coverage)}`;
  return [makePlaceLink(["run", run.number], formatPercent(run.rate.value)),
    make("span", { class: "under" }, formatInterval(run.rate)),
    make("span", { class: `under ${isWhole ? "" : "short"}` }, coverage)];
}
