/** The transcript of a session: pages of items, called up one after another. */

import { insertFragment, make, makeArguments, makeButton, makeDiff, makeForeign } from "./elements.js";
import { makeImage, setText } from "./elements.js";
import { ProgramCard } from "./program_card.js";
import { firstLine, formatClock, formatDuration, formatTokens, wordsOf } from "./text.js";

/** @import { Argument, DiffLine } from "./model.js" */
/** @import { Desk } from "./session_tree.js" */

/**
 * @typedef {{seq: number, name: string, at_ms: number, kind: string, title: string, text: string, html: string|null,
 *   call: {tool: string, key: string, arguments: Argument[]}|null, diff: DiffLine[]|null,
 *   images: {ref: string, mime: string, bytes: number}[], is_failure: boolean, is_cut: boolean,
 *   turn: number|null, tokens: number|null, took_ms: number|null}} Item
 * @typedef {{tool: string, members: HTMLElement[], box: HTMLDetailsElement|null, count: HTMLElement|null}} Run
 * @typedef {{after: number, nodes: number, items: number}} Page Items that came together: behind which fact.
 */

const PAGE_ITEMS = 200;
const MOST_ITEMS = 800;
const EARLIER_PAGES = 3;
const LEAST_CALLS = 4;
const LONG_NOTICE = 400;
const BUSY_PAUSE_MS = 300;
const NAMES = new Map(
  Object.entries({
    message: "Message", thinking: "Thinking", reply: "Reply", call: "Call", result: "Result", approval: "Approval",
    question: "Question", answer: "Answer", summary: "Summary", notice: "Notice", failure: "Failure", end: "End",
  }),
);

/** The items of one session; what comes while it is open is appended. */
export class TranscriptView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.session = "";
    /** @type {Map<string, {card: HTMLDetailsElement, body: HTMLElement, mark: HTMLElement}>} */
    this.calls = new Map();
    /** @type {Map<string, ProgramCard>} */
    this.programs = new Map();
    /** @type {Run|null} */
    this.run = null;
    this.starts = [0];
    this.after = 0;
    /** @type {Page[]} */
    this.pages = [];
    this.earlier = makeButton("Show earlier", () => this.#showEarlier(), { class: "more", hidden: true });
    this.items = make("div", { class: "items", role: "group", "aria-label": "Transcript" });
    this.more = makeButton("Show more", () => this.load(), { class: "more", hidden: true });
    this.note = make("p", { class: "empty", role: "status" });
    this.element = make("div", { class: "transcript" }, this.earlier, this.items, this.note, this.more);
    this.watch = new IntersectionObserver((seen) => {
      if (seen.some((each) => each.isIntersecting) && !this.more.hidden) this.load();
    });
    this.watch.observe(this.more);
    this.#reset();
  }

  /** @param {number} [after] The transcript begins behind this fact. */
  #reset(after = 0) {
    this.after = after;
    this.pages = [];
    if (after === 0) this.starts = [0];
    /** @type {Promise<void>|null} */
    this.loading = null;
    this.earlier.hidden = true;
    /** @type {number} */
    this.turn = -1;
    this.isStale = false;
    this.calls.clear();
    this.programs.clear();
    this.run = null;
    this.items.replaceChildren();
    this.more.hidden = true;
    setText(this.note, "");
  }

  /**
   * @param {string} session
   * @param {number} [seq] The item to bring into sight.
   */
  async open(session, seq) {
    if (session !== this.session) {
      this.session = session;
      this.#reset();
      await this.load();
    } else {
      await this.refresh(); // another tab was open while more was said
    }
    if (seq === undefined || this.session !== session) return;
    if (!this.more.hidden) await this.#loadUpTo(seq);
    if (this.session !== session) return;
    const item = this.items.querySelector(`[data-seq="${Number(seq)}"]`);
    for (let up = item; up; up = up.parentElement) if (up instanceof HTMLDetailsElement) up.open = true;
    item?.scrollIntoView({ block: "center" });
    if (item instanceof HTMLElement) item.focus();
  }

  /** Reads what came since; called when the session's row changed. */
  async refresh() {
    if (!this.session || !this.more.hidden) return;
    const scroller = this.element.closest(".content");
    const isAtEnd = scroller !== null && scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 60;
    await this.load();
    for (const program of this.programs.values()) if (!program.isOver && program.element.open) program.refresh();
    if (isAtEnd) scroller.scrollTop = scroller.scrollHeight;
  }

  /** Loads the next page; one at a time. */
  load() {
    if (this.loading) {
      this.isStale = true;
      return this.loading;
    }
    const own = this.#load().finally(() => {
      if (this.loading === own) this.loading = null;
    });
    this.loading = own;
    return own;
  }

  async #load() {
    const { session } = this;
    const after = /** @type {number} */ (this.after);
    this.items.setAttribute("aria-busy", "true");
    try {
      const { items, next, seq } = await this.desk.ask("transcript", { session, after, most: PAGE_ITEMS });
      if (session !== this.session || after !== this.after) return;
      const before = this.items.childElementCount;
      for (const item of items) this.#add(item);
      this.after = Number(seq ?? items.at(-1)?.seq ?? after);
      this.#keepPage({ after, nodes: this.items.childElementCount - before, items: items.length });
      this.more.hidden = next === null;
      setText(this.note, this.items.childElementCount ? "" : "Nothing was said yet.");
    } catch (error) {
      if (session === this.session) setText(this.note, wordsOf(error));
    }
    if (session !== this.session) return;
    this.items.removeAttribute("aria-busy");
    if (this.isStale) {
      this.isStale = false;
      setTimeout(() => this.refresh(), BUSY_PAUSE_MS);
    }
  }

  /** @param {Page} page Keeps so many items in the document, the newest; those before them are called up again. */
  #keepPage(page) {
    const last = this.pages.at(-1);
    if (last && last.items + page.items <= PAGE_ITEMS) {
      last.nodes += page.nodes;
      last.items += page.items;
    } else {
      this.pages.push(page);
      if (!this.starts.includes(page.after)) this.starts.push(page.after);
    }
    let kept = this.pages.reduce((sum, each) => sum + each.items, 0);
    while (this.pages.length > 1 && kept - this.pages[0].items >= MOST_ITEMS) {
      const { nodes, items } = /** @type {Page} */ (this.pages.shift());
      for (let count = 0; count < nodes; count += 1) this.items.firstElementChild?.remove();
      kept -= items;
    }
    for (const [key, { card }] of this.calls) if (!card.isConnected) this.calls.delete(key);
    for (const [key, { element }] of this.programs) if (!element.isConnected) this.programs.delete(key);
    this.earlier.hidden = !this.pages[0].after;
  }

  async #showEarlier() {
    const first = this.pages[0].after;
    const start = this.starts[Math.max(0, this.starts.indexOf(first) - EARLIER_PAGES)];
    this.#reset(start);
    await this.#loadUpTo(first + 1);
    const items = /** @type {HTMLElement[]} */ ([...this.items.querySelectorAll("[data-seq]")]);
    items.find((item) => Number(item.dataset.seq) > first)?.scrollIntoView({ block: "start" });
  }

  /** @param {number} seq */
  async #loadUpTo(seq) {
    const { session } = this;
    for (let before = -1; this.session === session && this.after < seq && this.after !== before; ) {
      before = this.after;
      await this.load();
      if (this.more.hidden) return;
    }
  }

  /** @param {Item} item */
  #add(item) {
    if (item.seq <= this.after) return;
    const call = item.call ? this.calls.get(item.call.key) : undefined;
    if (item.kind === "result" && call) return this.#addResult(item, call);
    if (item.turn !== null && item.turn !== this.turn) {
      this.turn = item.turn;
      this.run = null;
      this.items.append(make("h3", { class: "turn" }, `Turn ${item.turn}`));
    }
    if (item.kind === "call" && item.call) return this.#addCall(item, item.call);
    if (item.kind === "program" && item.call) return this.#addProgram(item, item.call.key);
    this.run = null;
    const isFolded = item.kind === "notice" && (item.title === "system prompt" || item.text.length > LONG_NOTICE);
    const element = isFolded ? this.#folded(item) : this.#frame(item);
    element.append(...this.#content(item, element));
    this.items.append(element);
    return undefined;
  }

  /** @param {Item} item What is seldom read, and long: it opens when it is chosen. */
  #folded(item) {
    const head = make("summary", {}, makeForeign(item.title, "name"),
      makeForeign(firstLine(item.text, 120), "gist"), this.#figures(item));
    return make("details", { class: "call folded", "data-seq": item.seq, tabindex: -1 }, head);
  }

  /** @param {Item} item */
  #frame(item) {
    const name = NAMES.get(item.kind) ?? item.kind;
    const element = make("article", {
      class: `item of-${NAMES.has(item.kind) ? item.kind : "notice"}${item.is_failure ? " failed" : ""}`,
      tabindex: -1, "data-seq": item.seq, "aria-label": `${name} ${firstLine(item.title, 60)}`,
    });
    const head = make("header", {}, make("span", { class: "name" }, name));
    if (item.is_failure) head.append(make("span", { class: "state", "data-state": "failed" }, "✕ failed"));
    const title = withoutName(item.title, name);
    if (title) head.append(makeForeign(title, "title"));
    head.append(this.#figures(item), ...this.#tools(item));
    element.append(head);
    return element;
  }

  /** @param {Item} item */
  #figures(item) {
    const words = [];
    if (item.tokens) words.push(`${formatTokens(item.tokens)} tokens`);
    if (item.took_ms !== null) words.push(formatDuration(item.took_ms));
    words.push(formatClock(item.at_ms));
    return make("span", { class: "figures" }, words.join(" · "));
  }

  /** @param {Item} item @returns {Node[]} */
  #tools(item) {
    if (!this.desk.may("fork")) return [];
    const words = `Fork the tree after this item, fact ${item.seq}`;
    return [makeButton("Fork", () => this.desk.fork(item.seq), { class: "link", title: words, "aria-label": words })];
  }

  /**
   * @param {Item} item
   * @param {Element} host
   * @returns {Node[]}
   */
  #content(item, host) {
    const parts = [];
    if (item.diff) parts.push(makeDiff(item.diff));
    if (item.html !== null) {
      const prose = make("div", { class: "prose", dir: "auto" });
      insertFragment(prose, item.html);
      parts.push(prose);
    } else if (item.text) {
      parts.push(make("pre", { class: "words", tabindex: item.text.length > 400 ? 0 : null }, makeForeign(item.text)));
    }
    if (item.is_cut) {
      const block = parts.at(-1) ?? make("div");
      if (!parts.length) parts.push(block);
      const button = makeButton("Show it whole", () => this.#showWhole(item, "text", block, host), { class: "link" });
      parts.push(make("p", { class: "cut" }, "This is cut. ", this.desk.reads("part") ? button : null));
    }
    return [...parts, ...item.images.map((image) => this.#picture(image))];
  }

  /**
   * @param {Item} item
   * @param {string} name
   * @param {Element} block
   * @param {Element} host
   */
  async #showWhole(item, name, block, host) {
    try {
      const { text } = await this.desk.ask("part", { seq: item.seq, item: item.name, name });
      const whole = make("pre", { class: "words whole", tabindex: 0 }, makeForeign(text));
      block.replaceWith(whole);
      host.querySelector(".cut")?.remove();
      whole.focus();
    } catch (error) {
      this.desk.say(wordsOf(error));
    }
  }

  /** @param {{ref: string, mime: string, bytes: number}} given */
  #picture(given) {
    const size = `${formatTokens(given.bytes)}B`;
    const place = make("figure", {});
    const show = async () => {
      const { mime, base64 } = await this.desk.ask("image", { ref: given.ref });
      place.replaceChildren(makeImage(mime, base64, `Image of the session, ${size}`) ?? "An image of another format.");
    };
    const button = makeButton(`Show the image (${size})`, () => show().catch((error) => this.desk.say(wordsOf(error))));
    place.append(this.desk.reads("image") ? button : `An image (${size}) that this view does not have`);
    return place;
  }

  /**
   * @param {Item} item
   * @param {{tool: string, key: string, arguments: Argument[]}} call
   */
  #addCall(item, call) {
    const gist = call.arguments.map(([, text]) => firstLine(text, 80)).join("  ");
    const mark = make("span", { class: "mark" }, "…");
    const head = make("summary", {},
      makeForeign(call.tool, "tool"), makeForeign(firstLine(gist, 100), "gist"), mark, this.#figures(item));
    const body = make("div", { class: "body" });
    const showWhole = (/** @type {string} */ name, /** @type {Element} */ block) =>
      this.#showWhole(item, name, block, /** @type {Element} */ (block.parentElement));
    body.append(makeArguments(call.arguments, this.desk.reads("part") ? showWhole : null));
    if (item.diff) body.append(makeDiff(item.diff));
    body.append(...this.#tools(item));
    const card = make("details", { class: "call", "data-seq": item.seq, tabindex: -1, open: item.diff !== null });
    card.append(head, body);
    this.calls.set(call.key, { card, body, mark });
    this.#place(card, call.tool, item.diff !== null);
  }

  /** @param {Item} item @param {string} key A program has the row of its call; its calls are below that. */
  #addProgram(item, key) {
    const program = new ProgramCard(this.desk, this.session, item, this.#figures(item));
    const { element, mark, body } = program;
    const call = this.calls.get(key);
    body.append(...this.#tools(item));
    if (call) call.card.replaceWith(element);
    else this.items.append(element);
    this.run = null;
    this.calls.set(key, { card: element, body, mark });
    this.programs.set(key, program);
    element.open = true;
  }

  /**
   * Puts a call where it belongs: several calls of one tool in a row fold together.
   * @param {HTMLDetailsElement} card
   * @param {string} tool
   * @param {boolean} isApart
   */
  #place(card, tool, isApart) {
    if (isApart || this.run?.tool !== tool) {
      this.run = isApart ? null : { tool, members: [], box: null, count: null };
      this.run?.members.push(card);
      this.items.append(card);
      return;
    }
    const { run } = this;
    run.members.push(card);
    if (run.members.length === LEAST_CALLS) {
      const count = make("span", {});
      const box = make("details", { class: "run" }, make("summary", {}, count, makeForeign(tool, "tool")));
      run.members[0].before(box);
      box.append(...run.members);
      run.box = box;
      run.count = count;
    }
    (run.box ?? this.items).append(card);
    if (run.count) setText(run.count, `${run.members.length} × `);
  }

  /**
   * @param {Item} item
   * @param {{card: HTMLDetailsElement, body: HTMLElement, mark: HTMLElement}} call
   */
  #addResult(item, { card, body, mark }) {
    const took = item.took_ms === null ? "" : ` ${formatDuration(item.took_ms)}`;
    setText(mark, item.is_failure ? `✕ failed${took}` : `✓${took}`);
    card.classList.toggle("failed", item.is_failure);
    const result = make("div", { class: "result", "data-seq": item.seq, tabindex: -1 });
    result.append(...this.#content(item, result));
    body.append(result);
    const program = this.programs.get(item.call?.key ?? "");
    if (program) {
      card.open = false;
      program.refresh();
    }
    if (!item.is_failure && !item.diff) return;
    card.open = true;
    const box = card.parentElement;
    if (item.is_failure && box instanceof HTMLDetailsElement) box.open = true;
  }
}

/** @param {string} title @param {string} name What a title says that the name beside it does not say. */
function withoutName(title, name) {
  const word = name.toLowerCase();
  if (title === word || title === "thinks") return "";
  return title.startsWith(`${word} `) ? title.slice(word.length + 1) : title;
}
