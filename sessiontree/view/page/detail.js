/** The pane beside the list: tabs of what waits, of the chosen session and of the whole tree. */

import { CanvasView } from "./canvas.js";
import { make, makeButton, setText } from "./elements.js";
import { makeAccount, makeHits, makePolicy, makeReceipt, makeReplay } from "./reports.js";
import { makeSessionHead, settleReport } from "./reports.js";
import { TimelineView } from "./timeline.js";
import { TranscriptView } from "./transcript.js";

/** @import { Child } from "./elements.js" */
/** @import { Desk } from "./session_tree.js" */

const TABS = /** @type {[string, string, string|null][]} */ ([
  ["requests", "Inbox", null], ["session", "Transcript", "transcript"], ["policy", "Tools", "policy"],
  ["canvas", "Canvas", null], ["timeline", "Timeline", "timeline"], ["account", "Account", null],
  ["receipt", "Receipt", "receipt"],
  ["replay", "Replay", "replay"], ["hits", "Search", "find"],
]);

/** One tab is open at a time; what it shows is asked for when it is opened. */
export class DetailView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.tab = "requests";
    this.sought = "";
    /** @type {any} */
    this.shownRow = null;
    this.transcript = new TranscriptView(desk);
    this.timeline = new TimelineView(desk);
    this.canvas = new CanvasView(desk);
    this.hadCanvas = false;
    this.tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
    this.content = make("div", { class: "content", role: "tabpanel", tabindex: 0, id: "panel" });
    const back = makeButton("← Sessions", () => desk.focusRows(), { class: "back" });
    this.element = make("section", { class: "detail pane", "aria-label": "Detail" },
      make("div", { class: "tab-line" }, back, this.tabs), this.content);
    this.#makeTabs();
  }

  get isOfSession() {
    return this.tab === "session" || this.tab === "policy";
  }

  #makeTabs() {
    for (const [name, words, verb] of TABS) {
      if (verb && !this.desk.reads(verb)) continue;
      const tab = makeButton(words, () => this.open(name), {
        role: "tab", "data-tab": name, "aria-controls": "panel", id: `tab-${name}`, "aria-selected": "false",
        tabindex: -1,
      });
      if (name === "hits" || name === "canvas") tab.hidden = true;
      this.tabs.append(tab);
    }
    this.tabs.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const open = [...this.tabs.children].filter((tab) => !tab.hidden);
      const at = open.findIndex((tab) => tab.dataset.tab === this.tab);
      const next = open[(at + step + open.length) % open.length];
      this.open(next.dataset.tab);
      next.focus();
      event.preventDefault();
    });
  }

  /** @param {string} name Opens a tab. */
  async open(name) {
    if (this.tab === "canvas" && name !== "canvas") this.canvas.close();
    this.tab = name;
    for (const tab of this.tabs.children) {
      const isOpen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      if (isOpen) tab.hidden = false;
    }
    this.content.setAttribute("aria-labelledby", `tab-${name}`);
    this.content.classList.toggle("wide", name === "timeline");
    this.content.classList.toggle("whole", name === "canvas");
    const show = (/** @type {Child[]} */ ...parts) => this.content.replaceChildren(.../** @type {Node[]} */ (parts));
    if (name === "requests" && this.desk.requests) return show(this.desk.requests.element);
    if (name === "session") {
      show(makeSessionHead(this.desk, this.desk.chosen), this.transcript.element);
      return this.transcript.open(this.desk.chosen);
    }
    if (name === "canvas") {
      if (!this.canvas.isOpen) show(this.canvas.element); // put in again, its frame would begin again
      return this.canvas.refresh();
    }
    if (name === "timeline") {
      show(this.timeline.element);
      return this.timeline.load();
    }
    show(make("p", { class: "empty", role: "status" }, "Reading…"));
    const parts = await settleReport(this.#report(name));
    if (this.tab === name) show(...parts);
    return undefined;
  }

  /** @param {string} name @returns {Promise<Child[]>} */
  async #report(name) {
    if (name === "account") return makeAccount(this.desk);
    const { chosen } = this.desk;
    if (name === "policy") return [makeSessionHead(this.desk, chosen), ...(await makePolicy(this.desk, chosen))];
    if (name === "receipt") return [makeReceipt(this.desk, (await this.desk.ask("receipt", {})).lines)];
    if (name === "replay") return makeReplay(this.desk);
    return makeHits(this.desk, this.sought);
  }

  /**
   * Shows the chosen session.
   * @param {number|undefined} seq The item to bring into sight.
   * @param {string|undefined} tab
   * @param {boolean} isEntered Whether the focus goes there, too.
   */
  async show(seq, tab, isEntered) {
    const { chosen, model } = this.desk;
    this.shownRow = model.rows[model.numberOf(chosen) ?? -1];
    const kept = this.isOfSession ? this.tab : "session";
    if (isEntered) this.content.focus({ preventScroll: true }); // at once: the next key may lead elsewhere
    await this.open(this.desk.reads("transcript") ? (tab ?? (seq === undefined ? kept : "session")) : "account");
    if (seq !== undefined) await this.transcript.open(chosen, seq);
  }

  /** Follows what changed: the number of requests, and the chosen session if its row is another. */
  refresh() {
    const { approvals, questions, rows } = this.desk.model;
    const waiting = approvals.length + questions.length;
    setText(this.tabs.querySelector("[data-tab=requests]"), waiting ? `Inbox (${waiting})` : "Inbox");
    this.#followCanvas();
    const row = rows[this.desk.model.numberOf(this.desk.chosen) ?? -1];
    if (row === this.shownRow) return;
    this.shownRow = row;
    if (this.tab !== "session") return;
    this.content.firstElementChild?.replaceWith(makeSessionHead(this.desk, this.desk.chosen));
    if (!this.desk.isPast) this.transcript.refresh();
  }

  /** Opens the tab of canvases when the first one is shown, unless somebody writes or decides something. */
  #followCanvas() {
    const isShown = this.canvas.heads.length > 0;
    const tab = this.tabs.querySelector("[data-tab=canvas]");
    if (tab instanceof HTMLElement && isShown) tab.hidden = false;
    if (isShown && !this.hadCanvas) this.desk.say("A canvas is shown.");
    const root = /** @type {ShadowRoot|Document} */ (this.element.getRootNode());
    const isBusy = this.tab === "requests" || root.querySelector("dialog[open]")
      || root.activeElement?.matches("input, textarea, select");
    if (isShown && !this.hadCanvas && !isBusy) {
      this.desk.frame.classList.add("reading");
      this.open("canvas");
    } else this.canvas.refresh();
    this.hadCanvas = isShown;
  }

  /** Draws anew what depends on the width. */
  resize() {
    if (this.tab === "timeline") this.timeline.draw();
  }
}
