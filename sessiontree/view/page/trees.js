/** The list of trees of `sessiontree serve`: live ones first, then the newest, read again every few seconds. */

import { make, makeTreeLink, setText } from "./elements.js";
import { makeListSheet, makePageSheet } from "./styles.js";
import { formatCount, formatDuration, formatNumber, wordsOf } from "./text.js";

/** @typedef {{id: string, purpose: string, created_ms: number, written_ms: number, facts: number,
 *   is_live: boolean}} TreeRow */

const EVERY_MS = 3000;

/** @param {number} at_ms A time, as how long it is ago. */
function makeTimeAgo(at_ms) {
  const words = at_ms ? `${formatDuration(Math.max(0, Date.now() - at_ms))} ago` : "";
  return make("span", { title: at_ms ? new Date(at_ms).toLocaleString() : "" }, words);
}

/** @param {TreeRow[]} trees */
function makeTreesTable(trees) {
  const rows = trees.map((tree) => {
    const name = make("td", {}, makeTreeLink(tree.id, tree.purpose || tree.id));
    if (tree.purpose) name.append(make("span", { class: "id" }, tree.id));
    return make("tr", {},
      make("td", { class: `state ${tree.is_live ? "live" : "stored"}` }, tree.is_live ? "● live" : "○ stored"),
      name,
      make("td", { class: "when" }, makeTimeAgo(tree.written_ms)),
      make("td", { class: "when" }, makeTimeAgo(tree.created_ms)),
      make("td", { class: "number" }, formatCount(tree.facts)));
  });
  const heads = ["State", "Tree", "Last fact", "Created"].map((head) => make("th", { scope: "col" }, head));
  heads.push(make("th", { scope: "col", class: "number" }, "Facts"));
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
}

/** The head, and the list below it. */
class TreesPage {
  constructor() {
    this.sum = make("p", { role: "status" });
    this.list = make("main", { class: "list" });
    document.body.append(make("header", {}, make("h1", {}, "Trees"), this.sum), this.list);
  }

  async show() {
    const answer = await fetch("/trees", { credentials: "same-origin", redirect: "error" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    /** @type {TreeRow[]} */
    const trees = (await answer.json()).trees;
    const live = trees.filter((tree) => tree.is_live);
    const shown = [...live, ...trees.filter((tree) => !tree.is_live)];
    const held = document.activeElement?.getAttribute("href");
    setText(this.sum, `${formatNumber(trees.length, "tree")}, ${formatCount(live.length)} live`);
    this.list.replaceChildren(trees.length ? makeTreesTable(shown)
      : make("p", { class: "empty" }, "No tree was made here yet. A program that runs one shows up by itself."));
    if (held) [...document.querySelectorAll("a")].find((link) => link.getAttribute("href") === held)?.focus();
  }

  async showForEver() {
    for (;;) {
      try {
        if (document.visibilityState === "visible") await this.show();
      } catch (error) {
        setText(this.sum, `No answer: ${wordsOf(error)} This is the last that was seen; trying again.`);
      }
      await new Promise((settle) => setTimeout(settle, EVERY_MS));
    }
  }
}

document.adoptedStyleSheets = [makePageSheet(), makeListSheet()];
new TreesPage().showForEver();
