/** Reports that are read once: a tree's account, its receipt, its replay, a session's rights, a search. */

import { make, makeButton, makeForeign, makeState } from "./elements.js";
import { formatClock, formatCost, formatCount, formatNumber, formatShare, wordsOf } from "./text.js";

/** @import { Desk } from "./session_tree.js" */
/** @import { Child } from "./elements.js" */

/**
 * Makes a table.
 * @param {string} caption
 * @param {string[]} heads
 * @param {Child[][]} lines
 */
export function makeTable(caption, heads, lines) {
  const table = make("table", {}, make("caption", {}, caption));
  const head = make("tr");
  for (const words of heads) head.append(make("th", { scope: "col" }, words));
  const body = make("tbody");
  for (const line of lines) {
    const row = make("tr");
    for (const cell of line) row.append(make("td", {}, cell));
    body.append(row);
  }
  table.append(make("thead", {}, head), body);
  return make("div", { class: "table", tabindex: 0, role: "region", "aria-label": caption }, table);
}

/**
 * Makes a link to a session of the tree.
 * @param {Desk} desk
 * @param {string} path
 * @param {number} [seq]
 */
function makeSessionLink(desk, path, seq) {
  const link = makeButton("", () => desk.show(path, true, seq), { class: "link" });
  link.append(makeForeign(path));
  const row = desk.model.numberOf(path);
  const label = row === undefined ? "" : desk.model.get(row, "label");
  return label && label !== path ? make("span", {}, link, " ", makeForeign(label, "label-of")) : link;
}

/** @param {Desk} desk @param {string} path Head of a session: where it stands, what it used itself and below. */
export function makeSessionHead(desk, path) {
  const { model } = desk;
  const row = model.numberOf(path);
  if (row === undefined) return make("div", { class: "head" }, "This session did not exist yet.");
  const sums = model.sums[row];
  const head = make("div", { class: "head" });
  const title = make("h2", {}, makeForeign(model.get(row, "label") || path));
  head.append(make("div", { class: "title-line" }, title, makeState(model.get(row, "state"))));
  const why = [model.get(row, "why"), model.get(row, "call")].filter(Boolean).join(" · ");
  if (why) head.append(make("p", { class: "why" }, makeForeign(why)));
  const figures = make("dl", { class: "figures" });
  const add = (/** @type {string} */ name, /** @type {Child} */ value) =>
    figures.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  add("path", makeForeign(path));
  add("kind", makeForeign(model.get(row, "kind")));
  add("turns", formatCount(model.get(row, "turns")));
  add("tokens", formatCount(model.get(row, "tokens")));
  add("cost", formatCost(model.get(row, "cost_usd")));
  if (sums.sessions > 1) {
    add("with all below", `${formatCount(sums.tokens)} tokens, ${formatCost(model.costBelow(row))}`);
    add("sessions below", `${formatCount(sums.sessions - 1)}${sums.failed ? `, ${sums.failed} failed` : ""}`);
  }
  const budget = model.get(row, "budget");
  if (budget !== null) {
    const bar = make("meter", { min: 0, max: 1, value: budget, "aria-label": "Budget left" });
    add("budget left", make("span", {}, bar, ` ${formatShare(budget)}`));
  }
  head.append(figures);
  return head;
}

/** @param {Desk} desk The tree's account: totals, how sessions ended, budget, where it runs. */
export function makeAccount(desk) {
  const { tree, totals, roots, children } = desk.model;
  const ended = Object.entries(totals.ended).map(([state, count]) => `${formatCount(count)} ${state}`);
  const costs = `${formatCost(totals.cost_usd)}${totals.is_cost_known ? "" : " (not every price is known)"}`;
  const lines = /** @type {[string, Child][]} */ ([
    ["Purpose", makeForeign(tree.purpose)], ["Tree", makeForeign(tree.id)],
    ["Workspace", makeForeign(tree.workspace)], ["Model", makeForeign(tree.model)],
    ["Began", formatClock(tree.created_ms)], ["Last fact", formatClock(desk.model.at_ms)],
    ["Sessions", `${formatCount(totals.sessions)}, ${formatCount(totals.live)} live`],
    ["Ended", ended.join(", ") || "none"],
    ["Tokens", `${formatCount(totals.input_tokens)} in, ${formatCount(totals.output_tokens)} out`], ["Cost", costs],
  ]);
  const parts = [makeTable("Account", ["What", "Value"], lines)];
  const families = roots.flatMap((root) => children[root]);
  const dear = [...families].sort((a, b) => desk.model.sums[b].nanos - desk.model.sums[a].nanos).slice(0, 20);
  if (dear.length) {
    const rows = dear.map((row) => [
      makeSessionLink(desk, desk.model.get(row, "path")), formatCount(desk.model.sums[row].sessions),
      formatCount(desk.model.sums[row].tokens), formatCost(desk.model.costBelow(row)),
    ]);
    parts.push(makeTable("Where it went, by subtree", ["Session", "Sessions", "Tokens", "Cost"], rows));
  }
  return parts;
}

/** @param {Desk} desk @param {string} session What each tool may do in a session, and why. */
export async function makePolicy(desk, session) {
  const { tools } = await desk.ask("policy", { session });
  const lines = tools.map((/** @type {[string, boolean, string, string]} */ [name, isHeld, tier, why]) => [
    makeForeign(name), isHeld ? "✓ held" : "– not held", makeForeign(tier), makeForeign(why),
  ]);
  return [makeTable(`Tools of ${session}`, ["Tool", "Right", "Tier", "Why"], lines)];
}

/**
 * @param {Desk} desk
 * @param {[string, string, string][]} lines
 */
export function makeReceipt(desk, lines) {
  const rows = lines.map(([path, state, words]) => [makeSessionLink(desk, path), makeState(state), makeForeign(words)]);
  return makeTable("Receipt", ["Session", "State", "What became of it"], rows);
}

/** @param {Desk} desk What a replay of the recorded facts decided differently. */
export async function makeReplay(desk) {
  const { compared, facts, differences } = await desk.ask("replay", {});
  const sum = `${formatNumber(compared, "decision")} compared over ${formatNumber(facts, "fact")}: `;
  if (!differences.length) return [make("p", { class: "good" }, `✓ ${sum}no difference.`)];
  const lines = differences.map((/** @type {{seq: number, what: string, recorded: string, replayed: string}} */ each) => [
    formatCount(each.seq), makeForeign(each.what),
    make("pre", { class: "removed" }, makeForeign(each.recorded)),
    make("pre", { class: "added" }, makeForeign(each.replayed)),
  ]);
  return [
    make("p", { class: "fault" }, `✕ ${sum}${formatNumber(differences.length, "difference")}.`),
    makeTable("Differences", ["Fact", "What", "Recorded", "Replayed"], lines),
  ];
}

/** @param {Desk} desk @param {string} text Where a text is in the transcripts. */
export async function makeHits(desk, text) {
  const most = 100;
  const { hits } = await desk.ask("find", { text, most });
  const lines = hits.map((/** @type {[number, number, string]} */ [row, seq, words]) => [
    makeSessionLink(desk, desk.model.rows[row] ? desk.model.get(row, "path") : "", seq), makeForeign(words),
  ]);
  if (!lines.length) return [make("p", { class: "empty" }, "No transcript has ", makeForeign(`“${text}”`), ".")];
  const bound = lines.length === most ? "the first " : "";
  return [makeTable(`${bound}${formatNumber(lines.length, "hit")} for “${text}”`, ["Session", "Text"], lines)];
}

/**
 * Makes the parts of a report that has to be asked for; what failed is said in its place.
 * @param {Promise<Child[]>} report
 * @returns {Promise<Child[]>}
 */
export async function settleReport(report) {
  try {
    return await report;
  } catch (error) {
    return [make("p", { class: "fault" }, wordsOf(error))];
  }
}
