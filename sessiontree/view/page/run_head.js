/** The head of a run: the rate beside its coverage, what is no answer, the costs, and how fast it goes. */

import { make, makeButton, makeForeign, setText } from "./elements.js";
import { OUTCOMES } from "./run_model.js";
import { formatDate, formatInterval, formatPercent, formatValue, makeOutcome, sayHead } from "./run_words.js";
import { formatCost, formatCount, formatDuration, formatTokens } from "./text.js";

/** @import { RunHeadFacts } from "./run_model.js" */

/** Figures, a bar of outcomes whose parts filter the rows, and the facts about the run. */
export class RunHeadView {
  /** @param {(outcome: string) => void} onOutcome Called with the outcome whose rows are wanted. */
  constructor(onOutcome) {
    this.onOutcome = onOutcome;
    this.figures = make("dl", { class: "big-figures" });
    this.sentence = make("p", { class: "sentence" });
    this.bar = make("div", { class: "bar", "aria-hidden": "true" });
    this.legend = make("div", { class: "outcomes", role: "group", "aria-label": "Outcomes" });
    this.chips = new Map(OUTCOMES.map((outcome) => [outcome, this.#makeChip(outcome)]));
    this.legend.append(...[...this.chips.values()].map(({ button }) => button));
    this.about = make("dl", { class: "about-list" });
    const about = make("details", { class: "about" }, make("summary", {}, "About this run: settings, code, command"), this.about);
    this.element = make("section", { class: "run-head", "aria-label": "What the run comes to" },
      this.figures, this.sentence, this.bar, this.legend, about);
    this.told = "";
  }

  /** @param {string} outcome */
  #makeChip(outcome) {
    const count = make("b");
    const button = makeButton("", () => this.onOutcome(outcome), { class: "chip", "aria-pressed": "false" });
    button.append(makeOutcome(outcome), count);
    const part = make("span", { class: "part", "data-outcome": outcome.replaceAll(" ", "-") });
    this.bar.append(part);
    return { button, count, part };
  }

  /** @param {boolean} isShort Shows the figures in one line, because a sample is read below. */
  shorten(isShort) {
    this.element.classList.toggle("short-head", isShort);
  }

  /** @param {RunHeadFacts} head @param {string} outcome The outcome whose rows are shown; empty = all. */
  refresh(head, outcome) {
    for (const [name, { button, count, part }] of this.chips) {
      setText(count, formatCount(head.counts[name]));
      button.hidden = head.counts[name] === 0 && outcome !== name;
      button.setAttribute("aria-pressed", String(outcome === name));
      part.hidden = head.counts[name] === 0;
      part.style.setProperty("flex-grow", String(head.counts[name]));
    }
    setText(this.sentence, sayHead(head));
    const told = JSON.stringify([head.rate, head.coverage, head.counts, head.scores, head.cost_usd, head.per_s, head.left_s]);
    if (told === this.told) return;
    this.told = told;
    this.figures.replaceChildren(...this.#makeFigures(head));
    if (!this.about.childElementCount) this.about.append(...makeAbout(head));
  }

  /** @param {RunHeadFacts} head */
  #makeFigures(head) {
    const faults = head.counts.infrastructure + head.counts.undecided;
    const interval = formatInterval(head.rate);
    const figures = [
      makeFigure("Pass rate", formatPercent(head.rate.value), interval ? `95\u2009%: ${interval}` : "no answers yet", "rate",
        `Interval: ${head.interval}`),
      makeFigure("Coverage", formatPercent(head.coverage), `${formatCount(head.scored)} of ${formatCount(head.total)} scored`,
        head.coverage === 1 ? "" : "short"),
      makeFigure("No answer", formatCount(faults), faults ? "bugs: not in the rate" : "no bugs", faults ? "faulty" : ""),
    ];
    if (head.scores.length > 1 || head.scores.some(([, passed, given, sum]) => passed !== sum && given)) {
      for (const [name, passed, given, sum] of head.scores.slice(0, 3)) {
        const mean = given ? formatValue(sum / given) : "–";
        figures.push(makeFigure(name, mean, `mean; ${given ? formatPercent(passed / given) : "–"} passed`, "mean"));
      }
    }
    figures.push(makeFigure("Cost", formatCost(head.cost_usd), `${formatTokens(head.tokens)} tokens`));
    if (head.is_live) {
      const left = head.left_s === null ? "" : `, ${formatDuration(head.left_s * 1000)} left`;
      figures.push(makeFigure("Pace", `${head.per_s.toFixed(1)}/s`, `● live${left}`, "live"));
    } else if (head.began_ms !== null) {
      figures.push(makeFigure("Took", formatDuration(head.worked_ms), formatDate(head.began_ms)));
    }
    return figures;
  }
}

/** @param {string} name @param {string} value @param {string} note @param {string} [kind] @param {string} [title] */
function makeFigure(name, value, note, kind = "", title = "") {
  return make("div", { class: `big ${kind}`, title: title || null }, make("dt", {}, makeForeign(name)),
    make("dd", {}, make("span", { class: "value" }, value), make("span", { class: "under" }, note)));
}

/** @param {RunHeadFacts} head */
function makeAbout(head) {
  const rows = /** @type {[string, string][]} */ ([
    ["directory", head.dir], ["began", formatDate(head.began_ms)], ["last score", formatDate(head.ended_ms)],
    ...(head.tags?.length ? [["tags", head.tags.join(", ")]] : []), ...head.settings,
  ]);
  return rows.map(([name, value]) => make("div", {}, make("dt", {}, makeForeign(name)),
    make("dd", {}, make("pre", {}, makeForeign(value)))));
}
