/** `<session-tree>`: a tree of sessions, from whatever source it is given. */

import { ActionsView } from "./actions.js";
import { DetailView } from "./detail.js";
import { make, makeButton } from "./elements.js";
import { isEnded, TreeModel } from "./model.js";
import { RequestsView } from "./requests.js";
import { ScrubberView } from "./scrubber.js";
import { RowsView } from "./session_rows.js";
import { makePageSheet, makeSheet } from "./styles.js";
import { wordsOf } from "./text.js";
import { TopView } from "./top.js";

/** @import { News, Snapshot, Source } from "./model.js" */

/** @typedef {SessionTree} Desk What the parts of the element know of it. */

const NARROW_PX = 760;
const GLANCE_MS = 180;
const TICK_MS = 1000;
/** The element; set its property `source`. */
export class SessionTree extends HTMLElement {
  constructor() {
    super();
    this.attachShadow({ mode: "open" });
    const root = /** @type {ShadowRoot} */ (this.shadowRoot);
    root.adoptedStyleSheets = [makeSheet()];
    this.frame = make("div", { class: "frame" });
    this.spoken = make("div", { class: "unseen", "aria-live": "polite", role: "status" });
    root.append(this.frame, this.spoken);
    /** @type {Source|null} */
    this.given = null;
    /** @type {TreeModel|null} */
    this.live = null;
    /** @type {TreeModel|null} */
    this.past = null;
    this.chosen = "";
    this.status = "connected";
    this.isDue = false;
    this.isRestoring = false;
    this.isBuilt = false;
    this.isNarrow = false;
    this.now = () => (this.isFollowing ? Math.max(Date.now(), this.model.at_ms) : this.model.at_ms);
  }

  get source() {
    return this.given;
  }

  set source(source) {
    this.given?.close();
    this.given = source;
    if (this.isConnected && source) this.#open(source);
  }

  get model() {
    return /** @type {TreeModel} */ (this.past ?? this.live);
  }

  get newest() {
    return /** @type {TreeModel} */ (this.live);
  }

  get isPast() {
    return this.past !== null;
  }

  /** Whether what is shown goes on by itself. */
  get isFollowing() {
    return Boolean(this.live?.tree.is_live) && !this.isPast && !this.isGone;
  }

  /** Whether the source has ended, and what is shown is the last that was seen. */
  get isGone() {
    return this.status === "closed" || this.status === "refused";
  }

  connectedCallback() {
    this.sizes = new ResizeObserver(() => this.#measure());
    this.sizes.observe(this);
    this.ticks = setInterval(() => this.#tick(), TICK_MS);
    if (this.given && !this.isBuilt) this.#open(this.given);
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    clearInterval(this.ticks);
    this.given?.close();
    this.isBuilt = false; // a notebook takes a cell out of its page, and puts it back
  }

  /** @param {Source} source */
  async #open(source) {
    this.frame.replaceChildren(make("p", { class: "empty", role: "status" }, "Opening the tree…"));
    this.isBuilt = true;
    try {
      const snapshot = await source.open((news) => this.given === source && this.#take(news));
      if (this.given !== source) return;
      this.live = new TreeModel(snapshot);
      this.past = null;
      this.#build();
    } catch (error) {
      const again = makeButton("Try again", () => this.#open(source));
      this.frame.replaceChildren(make("p", { class: "fault", role: "alert" }, wordsOf(error), " ", again));
    }
  }

  #build() {
    this.rows = new RowsView(this);
    this.requests = new RequestsView(this);
    this.scrubber = new ScrubberView(this);
    this.actions = new ActionsView(this);
    this.top = new TopView(this);
    this.detail = new DetailView(this);
    const isWhole = this.hasAttribute("page"); // within another page it is no landmark
    const parts = [this.rows.element, this.detail.element, this.actions.element];
    const panes = make(isWhole ? "main" : "div", { class: "panes" }, ...parts);
    this.frame.replaceChildren(this.top.element, panes, this.scrubber.element);
    this.frame.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#press(event));
    const { approvals, questions } = this.model;
    const main = this.model.roots.length ? this.model.get(this.model.roots[0], "path") : "";
    this.chosen = main;
    const isAsked = approvals.length + questions.length > 0 || !main || !this.reads("transcript");
    this.detail.tab = isAsked ? "requests" : "session";
    if (!isAsked && this.detail.canvas.heads.length) this.detail.tab = "canvas";
    this.#measure();
    this.#draw();
    this.detail.open(this.detail.tab);
  }

  /** @param {News} news */
  #take(news) {
    if (news.kind === "status") {
      this.#note(news.status);
    } else if (!this.live) {
      return; // the snapshot that is under way has it
    } else if (news.kind === "snapshot") {
      this.#replace(news);
    } else {
      const before = new Set([...this.live.approvals, ...this.live.questions].map(({ id }) => id));
      if (this.live.apply(news) === "gap") this.#restore();
      this.#note("connected");
      this.#announce(before);
    }
    this.#drawSoon();
  }

  /** @param {string} status */
  #note(status) {
    const wasGone = this.isGone;
    this.status = status;
    if (wasGone !== this.isGone) this.requests?.clear(); // nobody is there to be answered
  }

  /** @param {Set<string>} before Ids of what was open before. */
  #announce(before) {
    const { approvals, questions } = this.newest;
    for (const { id, tool, session } of approvals) {
      if (!before.has(id)) this.say(`New request: ${session} asks for ${tool}.`);
    }
    for (const { id, session } of questions) if (!before.has(id)) this.say(`New question of ${session}.`);
  }

  /** @param {Snapshot} snapshot */
  #replace(snapshot) {
    const isOther = this.live?.feed !== snapshot.feed;
    this.live = new TreeModel(snapshot);
    if (this.past) return;
    this.rows?.setModel();
    if (isOther) this.requests?.clear(); // what may be done can be another
  }

  async #restore() {
    if (this.isRestoring || !this.given) return;
    this.isRestoring = true;
    try {
      this.#replace(await this.given.ask("snapshot", {}));
      this.#drawSoon();
    } catch (error) {
      this.say(wordsOf(error));
    }
    this.isRestoring = false;
  }

  #drawSoon() {
    if (this.isDue || !this.rows) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.#draw();
    });
  }

  #draw() {
    if (!this.live) return;
    this.top?.refresh(this.status);
    this.rows?.refresh();
    this.requests?.refresh();
    this.scrubber?.refresh();
    this.detail?.refresh();
  }

  #tick() {
    if (!this.rows || !this.isFollowing || document.hidden) return;
    this.rows.draw(true);
    this.requests?.tick();
  }

  #measure() {
    const isNarrow = this.clientWidth < NARROW_PX;
    this.frame.classList.toggle("narrow", isNarrow);
    this.isNarrow = isNarrow;
    this.rows?.setNarrow(isNarrow);
    this.detail?.resize();
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const from = /** @type {Element} */ (event.composedPath()[0]);
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (from.matches("input:not([type=range]), textarea, select") || from.closest("dialog")) return;
    if (event.key === "/") this.rows?.text.focus();
    else if (event.key === "?") this.actions?.openKeys();
    else if (event.key === "g" && !from.matches("[role=treegrid]")) this.goToInbox();
    else if (event.key === "Escape") this.focusRows();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Goes to the first request or question that waits for a person. */
  goToInbox() {
    this.frame.classList.add("reading");
    this.detail?.open("requests");
    this.requests?.focusFirst();
  }

  /** @param {string} verb Whether a verb acts here, by what the feed said. */
  may(verb) {
    return !this.isPast && !this.isGone && this.newest.can.has(verb);
  }

  /** @param {string} verb @param {string} path Whether a verb acts on a session as it stands. */
  mayOn(verb, path) {
    const row = this.model.numberOf(path);
    return row !== undefined && this.may(verb) && !isEnded(this.model.get(row, "state"));
  }

  /** @param {string} verb Whether the source can be asked for something. */
  reads(verb) {
    return !this.given?.reads || this.given.reads.has(verb);
  }

  /**
   * @param {string} verb
   * @param {object} given
   * @returns {Promise<any>}
   */
  async ask(verb, given) {
    if (!this.given) throw new Error("No tree is open.");
    const value = await this.given.ask(verb, given);
    if (value?.error) throw new Error(String(value.error));
    return value;
  }

  /** @param {string} words Says something to who listens instead of looking. */
  say(words) {
    this.spoken.append(make("p", {}, words));
    while (this.spoken.childElementCount > 3) this.spoken.firstElementChild?.remove();
  }

  /**
   * Shows a session.
   * @param {string} path
   * @param {boolean} [isEntered] Whether the focus goes there, too.
   * @param {number} [seq] The item to bring into sight.
   * @param {string} [tab]
   */
  async show(path, isEntered = false, seq = undefined, tab = undefined) {
    clearTimeout(this.glancing);
    const row = this.model.numberOf(path);
    if (row === undefined) return this.say(`There is no session ${path} here.`);
    this.chosen = path;
    if (this.rows && this.rows.active !== row) this.rows.reveal(row);
    this.rows?.draw(true);
    this.frame.classList.add("reading");
    await this.detail?.show(seq, tab, isEntered || this.isNarrow);
    return undefined;
  }

  /** @param {string} path Shows a session beside the list, if that stays in sight. */
  glance(path) {
    clearTimeout(this.glancing);
    if (this.isNarrow || !this.detail?.isOfSession) return;
    this.glancing = setTimeout(() => this.show(path), GLANCE_MS);
  }

  focusRows() {
    this.frame.classList.remove("reading");
    this.rows?.grid.focus();
  }

  /** @param {number} most The rows in the list from the first in sight on. */
  rowsInSight(most) {
    const rows = this.rows;
    if (!rows) return [];
    const first = Math.floor(rows.grid.scrollTop / rows.rowPx);
    return rows.view.lines.slice(first, first + most).map((line) => line.row);
  }

  /** @param {string} text */
  search(text) {
    if (!this.reads("find")) return;
    this.frame.classList.add("reading");
    if (this.detail) this.detail.sought = text;
    this.detail?.open("hits");
  }

  /** @param {"steer"|"interrupt"|"cancel"} verb @param {string} path Opens the dialog of a verb. */
  act(verb, path) {
    this.actions?.openAct(verb, path);
  }

  /** @param {number} seq */
  fork(seq) {
    this.actions?.openFork(seq);
  }

  /** @param {string} path @param {Element} near */
  openMenu(path, near) {
    this.actions?.openMenu(path, near);
  }

  /** @param {Snapshot|null} snapshot The tree as of a fact; null = as it is. */
  showPast(snapshot) {
    const wasPast = this.isPast;
    this.past = snapshot === null ? null : new TreeModel(snapshot);
    this.rows?.setModel();
    if (wasPast !== this.isPast) this.requests?.clear();
    this.#draw();
  }
}

/**
 * Puts a tree into a page.
 * @param {Element} host
 * @param {Source} source
 * @param {"light"|"dark"|""} [theme] Empty = as the reader's system has it.
 * @returns {SessionTree}
 */
export function mountTree(host, source, theme = "") {
  if (!customElements.get("session-tree")) customElements.define("session-tree", SessionTree);
  const element = /** @type {SessionTree} */ (document.createElement("session-tree"));
  if (theme) element.setAttribute("theme", theme);
  if (host === document.body) {
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, makePageSheet()];
    element.setAttribute("page", "");
  }
  element.source = source;
  host.append(element);
  return element;
}
