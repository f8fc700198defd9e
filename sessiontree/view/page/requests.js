/** What a person is asked: requests for approval as cards, questions as forms. */

import { make, makeArguments, makeButton, makeDiff, makeForeign, setText } from "./elements.js";
import { firstLine, formatClock, formatDuration, formatNumber, wordsOf } from "./text.js";

/** @import { Approval, Question, QuestionItem } from "./model.js" */
/** @import { Desk } from "./session_tree.js" */

/** @typedef {{element: HTMLElement, expires: HTMLElement, until: number|null}} Card */

const DEAF_MS = 400;

/** The inbox: cards stay as they are while a person types in them. */
export class RequestsView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    /** @type {Map<string, Card>} */
    this.cards = new Map();
    /** The card that came under a person's keys by itself, and until when it does not hear them. */
    this.deaf = { card: /** @type {Element|null} */ (null), until: 0 };
    this.list = make("div", { class: "cards" });
    this.empty = make("p", { class: "empty" }, "Nobody waits for you.");
    this.element = make("div", { class: "requests" }, this.empty, this.list);
  }

  /** Shows what is open; a card that is gone leaves, and its focus goes to the next one. */
  refresh() {
    const { approvals, questions } = this.desk.model;
    const open = new Map([
      ...approvals.map((each) => /** @type {[string, () => Card]} */ ([`a:${each.id}`, () => this.#approval(each)])),
      ...questions.map((each) => /** @type {[string, () => Card]} */ ([`q:${each.id}`, () => this.#question(each)])),
    ]);
    for (const [key, card] of this.cards) if (!open.has(key)) this.#drop(key, card);
    for (const [key, makeCard] of open) {
      if (this.cards.has(key)) continue;
      const card = makeCard();
      this.cards.set(key, card);
      this.list.append(card.element);
    }
    this.empty.hidden = open.size > 0;
    this.tick();
  }

  /** Forgets all cards: another tree, or the same at another fact. */
  clear() {
    this.cards.clear();
    this.list.replaceChildren();
  }

  /** Writes how long each card is still open. */
  tick() {
    for (const { expires, until } of this.cards.values()) {
      setText(expires, until ? `expires in ${formatDuration(until - this.desk.now())}` : "");
    }
  }

  focusFirst() {
    this.list.querySelector("article")?.focus();
  }

  /** @param {string} key @param {Card} card */
  #drop(key, card) {
    const root = /** @type {ShadowRoot} */ (card.element.getRootNode());
    const isFocused = card.element.contains(root.activeElement);
    const next = card.element.nextElementSibling ?? card.element.previousElementSibling;
    card.element.remove();
    this.cards.delete(key);
    if (!isFocused) return;
    this.deaf = { card: next, until: performance.now() + DEAF_MS }; // a key pressed twice must not decide two requests
    if (next instanceof HTMLElement) next.focus();
    else this.desk.focusRows();
  }

  /**
   * @param {string} kind
   * @param {Approval|Question} given
   * @param {string} heading
   * @param {Node[]} badges
   */
  #frame(kind, given, heading, badges) {
    const id = `${kind}-${given.id}`;
    const expires = make("span", { class: "expires" });
    const way = make("span", { class: "through" });
    way.append(makeButton("", () => this.desk.show(given.session), { class: "link", title: "Show its transcript" }));
    way.firstElementChild.append(makeForeign(given.session));
    const row = this.desk.model.numberOf(given.session);
    const label = row === undefined ? "" : this.desk.model.get(row, "label");
    if (label && label !== given.session) way.append(" ", makeForeign(label, "label-of"));
    way.append(kind === "approval" ? " asks" : " wants to know");
    if (given.through.length > 1) way.append(" through ", makeForeign(given.through.slice(1).join(" → ")));
    const title = make("h2", { id }, makeForeign(heading));
    const head = make("header", {}, title, ...badges, expires);
    const asked = make("p", { class: "asked" }, way, make("span", {}, ` · ${formatClock(given.asked_ms)}`));
    const fault = make("p", { class: "fault", role: "alert" });
    const element = make("article", { class: `card ${kind}`, tabindex: 0, "aria-labelledby": id }, head, asked);
    return { element, expires, fault };
  }

  /**
   * @param {Approval} given
   * @returns {Card}
   */
  #approval(given) {
    const tier = make("span", { class: "badge" }, makeForeign(given.tier));
    const { element, expires, fault } = this.#frame("approval", given, given.tool, [tier]);
    if (given.asked_by.length) {
      element.append(make("p", { class: "note" }, "Asked for by ", makeForeign(given.asked_by.join(", "))));
    }
    const showWhole = (/** @type {string} */ name, /** @type {Element} */ block) => {
      this.desk.ask("part", { seq: given.seq, name })
        .then(({ text }) => block.replaceChildren(makeForeign(text)), (error) => setText(fault, wordsOf(error)));
    };
    element.append(makeArguments(given.arguments, this.desk.reads("part") ? showWhole : null));
    if (given.diff) element.append(makeDiff(given.diff));
    if (given.opens) element.append(make("p", { class: "note" }, "It opens: ", makeForeign(given.opens)));
    const cover = make("p", { class: "note" }, "Always covers ", makeForeign(given.covers));
    if (this.desk.may("approve") || this.desk.may("deny")) this.#addDecision(element, given, cover, fault);
    else element.append(cover, make("p", { class: "note" }, "This view cannot decide."));
    element.append(fault);
    return { element, expires, until: given.expires_ms };
  }

  /**
   * @param {HTMLElement} element
   * @param {Approval} given
   * @param {Node} cover
   * @param {HTMLElement} fault
   */
  #addDecision(element, given, cover, fault) {
    const reason = make("input", {
      class: "reason", placeholder: "Reason (optional)", maxlength: 2000, autocomplete: "off",
      "aria-label": `Reason of your decision on ${given.tool}`,
    });
    const decide = (/** @type {string} */ verb, always = false) => {
      const words = { id: given.id, reason: reason.value.trim() };
      this.#send(element, fault, verb, verb === "approve" ? { ...words, always } : words);
    };
    const row = make("div", { class: "buttons" });
    if (this.desk.may("approve")) {
      row.append(makeButton("Approve", () => decide("approve"), { class: "primary", "aria-keyshortcuts": "a" }));
    }
    if (this.desk.may("deny")) {
      row.append(makeButton("Deny", () => decide("deny"), { class: "danger", "aria-keyshortcuts": "d" }));
    }
    if (this.desk.may("approve")) {
      row.append(makeButton("Always", () => decide("approve", true), { "aria-keyshortcuts": "Shift+A" }));
    }
    for (const [place, key] of ["a", "d", "⇧A"].entries()) row.children[place]?.append(make("kbd", {}, key));
    element.append(reason, row, cover);
    reason.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      element.focus(); // from here the keys of the card decide
      event.preventDefault();
      event.stopPropagation();
    });
    element.addEventListener("keydown", (event) => {
      if (event.target !== element || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "r") this.deaf.card = null;
      if (this.deaf.card === element && performance.now() < this.deaf.until) return;
      if (event.key === "a" && this.desk.may("approve")) decide("approve");
      else if (event.key === "d" && this.desk.may("deny")) decide("deny");
      else if (event.key === "A" && this.desk.may("approve")) decide("approve", true);
      else if (event.key === "r") reason.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /**
   * @param {HTMLElement} element
   * @param {HTMLElement} fault
   * @param {string} verb
   * @param {object} given
   */
  async #send(element, fault, verb, given) {
    if (element.hasAttribute("aria-busy")) return;
    element.setAttribute("aria-busy", "true");
    setText(fault, "");
    try {
      await this.desk.ask(verb, given);
      this.desk.say(verb === "deny" ? "Denied." : verb === "approve" ? "Approved." : "Answered.");
    } catch (error) {
      setText(fault, wordsOf(error));
    }
    element.removeAttribute("aria-busy");
  }

  /**
   * @param {Question} given
   * @returns {Card}
   */
  #question(given) {
    const heading = given.items.length === 1 ? "A question" : formatNumber(given.items.length, "question");
    const { element, expires, fault } = this.#frame("question", given, heading, []);
    const form = make("form", {});
    const fields = given.items.map((item, place) => makeField(item, `${given.id}-${place}`));
    form.append(...fields.map((field) => field.element));
    form.addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      const answers = fields.map((field) => field.read());
      const open = answers.findIndex(({ chosen, text }) => chosen.length === 0 && text === "");
      if (open >= 0) setText(fault, `Answer “${firstLine(given.items[open].text, 60)}”.`);
      else this.#send(element, fault, "answer", { id: given.id, answers });
    });
    if (this.desk.may("answer")) {
      form.append(make("div", { class: "buttons" }, make("button", { type: "submit", class: "primary" }, "Answer")));
    } else {
      form.append(make("p", { class: "note" }, "This view cannot answer."));
    }
    element.append(form, fault);
    return { element, expires, until: given.expires_ms };
  }
}

/**
 * @param {QuestionItem} item
 * @param {string} id
 * @returns {{element: HTMLElement, read: () => {chosen: string[], text: string}}}
 */
function makeField(item, id) {
  const element = make("fieldset", {}, make("legend", {}, makeForeign(item.text)));
  const boxes = item.options.map(({ label, hint }, place) => {
    const box = make("input", { type: item.may_choose_many ? "checkbox" : "radio", name: id, id: `${id}-${place}` });
    const words = make("span", {}, makeForeign(label));
    if (hint) words.append(make("span", { class: "hint" }, makeForeign(hint)));
    element.append(make("label", { class: "option" }, box, words));
    return { box, label };
  });
  const text = make("textarea", {
    rows: 2, maxlength: 8000, placeholder: boxes.length ? "Or in your own words" : "Your answer",
    "aria-label": `Your own words on: ${firstLine(item.text)}`,
  });
  if (item.is_free || !boxes.length) element.append(text);
  const read = () => ({
    chosen: boxes.filter(({ box }) => box.checked).map(({ label }) => label), text: text.value.trim(),
  });
  return { element, read };
}
