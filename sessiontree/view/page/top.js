/** The head of the page: what the tree is for, how it stands, what it used, who waits for a person. */

import { make, makeButton, makeForeign, makeHomeLink, makeState, setText } from "./elements.js";
import { firstLine, formatCost, formatCount, formatNumber, formatTokens } from "./text.js";

/** @import { Desk } from "./session_tree.js" */

const LINKS = new Map([["reconnecting", "reconnecting…"], ["closed", "ended"], ["refused", "ended"]]);
const BANNERS = new Map([
  ["closed", "The program has ended; this is the last that was seen."],
  ["refused", "Another server answers here and does not know this page; open the address that it printed. " +
    "This is the last that was seen."],
]);

/** The head; its buttons stay the same elements, so that they keep the focus. */
export class TopView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.title = make("h1");
    this.figures = make("p", { class: "totals" });
    this.inbox = makeButton("", () => desk.goToInbox(), { class: "primary inbox", title: "First request (g)" });
    const keys = makeButton("?", () => desk.actions?.openKeys(), { class: "keys-button", "aria-label": "Keys" });
    this.banner = make("p", { class: "banner", role: "status", hidden: true });
    const home = desk.given?.hasPages ? makeHomeLink() : null;
    const titles = make("div", { class: "titles" }, this.title, this.figures);
    const line = make("div", { class: "top" }, home, titles, this.inbox, keys);
    this.element = make("header", {}, line, this.banner);
  }

  /** @param {string} status How the source is connected. */
  refresh(status) {
    const { model, isPast } = this.desk;
    const { tree, totals, roots } = model;
    const waiting = totals.requests + totals.questions;
    const link = LINKS.get(status) ?? (tree.is_whole ? (tree.is_live ? "live" : "recorded") : "reading…");
    if (!this.title.childElementCount) this.title.append(makeForeign(firstLine(tree.purpose, 160) || tree.id));
    this.title.title = tree.purpose;
    const parts = roots.length ? [makeState(model.get(roots[0], "state"))] : [];
    const words = [
      formatNumber(totals.sessions, "session"), `${formatCount(totals.live)} live`,
      `${formatTokens(totals.tokens)} tokens`, `${formatCost(totals.cost_usd)}${totals.is_cost_known ? "" : "+"}`,
    ];
    this.figures.replaceChildren(...parts, ...words.map((each) => make("span", {}, each)),
      make("span", { class: `link-state ${status}` }, link));
    this.inbox.hidden = waiting === 0 || isPast || this.desk.isGone;
    setText(this.inbox, `◆ ${formatNumber(waiting, "waits", "wait")} for you`);
    const told = isPast
      ? `The tree as it was at fact ${formatCount(model.seq)}. Nothing can be done here.` : (BANNERS.get(status) ?? "");
    this.banner.hidden = !told;
    setText(this.banner, told);
  }
}
