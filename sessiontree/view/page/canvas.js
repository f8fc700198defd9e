/**
 * The tab of canvases: what a session shows to a person, in a frame that reaches nothing of this page.
 *
 * The frame has an origin of its own that nobody else has, loads nothing, opens nothing and leads nowhere. What
 * comes out of it is text from outside: an action goes to the session as that, and approves nothing.
 */

import { make, makeForeign, setText } from "./elements.js";
import { wordsOf } from "./text.js";

/** @import { CanvasHead } from "./model.js" */
/** @import { Desk } from "./session_tree.js" */

const MAX_ACTION = 8_000;
const MAX_ANSWER = 200 * 1024;
const PAUSE_MS = 1_000;
const READY_MS = 10_000;
/** For how long a browser counts a click or key as one, at most; and some time for its own clock. */
const CLICK_MS = 5_000 + 200;
const TOUCHES = ["pointerdown", "pointerup", "mousedown", "touchend", "keydown"];
const DROPPED = "An action without a click was dropped.";
const KINDS_OF_PAGES = new Map([["html", "A page"], ["file", "A page"], ["web", "A web page"], ["a2ui", "Surfaces"]]);

/** Shows the canvas of one session at a time while its tab is open. */
export class CanvasView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.session = "";
    this.shown = "";
    this.revision = -1;
    this.viewer = "";
    this.isReady = false;
    /** @type {HTMLIFrameElement|null} */
    this.frame = null;
    /** @type {Set<string>} Ids of the questions that the frame was asked and has not answered. */
    this.asked = new Set();
    this.title = make("h2", {}, "");
    this.choice = make("select", { "aria-label": "Canvas of" });
    this.choice.addEventListener("change", () => this.#choose(this.choice.value));
    this.note = make("p", { class: "note", role: "status" }, "");
    this.place = make("div", { class: "canvas-place" });
    const head = make("div", { class: "canvas-head" }, this.title, this.choice, this.note);
    this.element = make("div", { class: "canvas" }, head, this.place);
    /** When this page itself was clicked, or a key was pressed in it. */
    this.touchedMs = -Infinity;
    /** Counts the actions of frames; of those that wait the newest is sent. */
    this.actions = 0;
    for (const kind of TOUCHES) addEventListener(kind, () => { this.touchedMs = performance.now(); }, { capture: true });
    addEventListener("message", (event) => this.#hear(event));
  }

  /** Whether the tab is open. */
  get isOpen() {
    return this.element.isConnected;
  }

  /** @returns {CanvasHead[]} The canvases that are shown. */
  get heads() {
    return this.desk.given?.framePath ? this.desk.newest.canvases.filter(({ is_shown: isShown }) => isShown) : [];
  }

  /** Shows what the newest facts say; called when the tab opens, and with each change. */
  refresh() {
    if (!this.isOpen) return;
    const { heads } = this;
    const head = heads.find(({ session }) => session === this.session)
      ?? heads.find(({ session }) => session === this.desk.chosen) ?? heads[0];
    this.choice.hidden = heads.length < 2;
    if (!head) return this.#clear("No session shows anything now.");
    this.session = head.session;
    const names = heads.map(({ session }) => session);
    if (names.join() !== [...this.choice.options].map(({ value }) => value).join()) {
      this.choice.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    }
    this.choice.value = head.session;
    this.#entitle(head);
    const shown = `${head.session} ${head.shows} ${head.shows === "a2ui" ? "" : head.page}`;
    if (shown !== this.shown) this.#load(head, shown);
    else if (head.shows === "a2ui" && this.isReady && head.revision !== this.revision) this.#send(head);
    return undefined;
  }

  /** The tab was closed: the frame has gone with it. */
  close() {
    this.#clear("");
  }

  /** @param {string} session */
  #choose(session) {
    this.session = session;
    this.refresh();
  }

  /** @param {CanvasHead} head */
  #entitle(head) {
    const words = head.title || KINDS_OF_PAGES.get(head.shows) || "Nothing";
    this.title.replaceChildren(makeForeign(words), " of ", makeForeign(head.session));
  }

  /** @param {string} words */
  #clear(words) {
    if (this.viewer) this.desk.ask("canvas_leave", { session: this.session, viewer: this.viewer }).catch(() => {});
    this.viewer = this.shown = "";
    this.isReady = false;
    this.frame = null;
    this.asked.clear();
    this.place.replaceChildren();
    setText(this.title, words);
    setText(this.note, "");
  }

  /** @param {CanvasHead} head @param {string} shown */
  #load(head, shown) {
    this.#clear("");
    this.shown = shown;
    this.viewer = crypto.randomUUID();
    const frame = make("iframe", { class: "canvas-frame", title: `Canvas of ${head.session}` });
    frame.setAttribute("sandbox", "allow-scripts"); // without an origin of this server: no cookie, no storage, no API
    frame.setAttribute("referrerpolicy", "no-referrer");
    const name = head.session.split("/").map(encodeURIComponent).join("/");
    const address = `${this.desk.given?.framePath}${name}?page=${encodeURIComponent(head.page)}`;
    frame.src = address;
    this.frame = frame;
    this.place.replaceChildren(frame);
    this.#entitle(head);
    const { viewer } = this;
    setTimeout(() => {
      if (this.viewer === viewer && !this.isReady) setText(this.note, "The frame does not answer.");
    }, READY_MS);
  }

  /** @param {MessageEvent} event */
  #hear(event) {
    if (!this.frame || event.source !== this.frame.contentWindow || event.origin !== "null") return;
    const said = event.data;
    if (said === null || typeof said !== "object") return;
    if (said.kind === "ready") this.#begin();
    else if (said.kind === "answer") this.#answer(said);
    else if (said.kind === "action") this.#act(said.action);
  }

  #begin() {
    const isFirst = !this.isReady; // a frame can load itself again, and what was said of it stays
    this.isReady = true;
    if (isFirst) setText(this.note, "");
    const head = this.heads.find(({ session }) => session === this.session);
    if (head?.shows === "a2ui") this.#send(head);
    if (isFirst) this.#listen(this.session, this.viewer);
  }

  /** @param {CanvasHead} head Sends the surfaces into the frame. */
  async #send(head) {
    this.revision = head.revision;
    const { viewer } = this;
    try {
      const canvas = await this.desk.ask("canvas", { session: head.session });
      if (this.viewer !== viewer) return;
      this.revision = canvas.revision;
      // its origin is none that could be named, and nothing in it is secret
      this.frame?.contentWindow?.postMessage({ kind: "show", ...canvas }, "*");
    } catch (error) {
      setText(this.note, wordsOf(error));
    }
  }

  /** @param {string} session @param {string} viewer Asks for questions to the frame as long as it is shown. */
  async #listen(session, viewer) {
    while (this.viewer === viewer && this.desk.may("canvas_wait")) {
      try {
        const { question } = await this.desk.ask("canvas_wait", { session, viewer });
        if (this.viewer !== viewer) return;
        if (!question) continue;
        this.asked.add(question.id);
        this.frame?.contentWindow?.postMessage(question, "*");
      } catch {
        await new Promise((settle) => setTimeout(settle, PAUSE_MS));
      }
    }
  }

  /** @param {{id: unknown, text: unknown}} said */
  async #answer({ id, text }) {
    if (typeof id !== "string" || typeof text !== "string" || !this.asked.delete(id)) return;
    const answer = text.length <= MAX_ANSWER ? text : JSON.stringify({ error: "the answer is too long" });
    await this.desk.ask("canvas_answer", { id, answer }).catch((error) => setText(this.note, wordsOf(error)));
  }

  /** Whether a person clicked or pressed a key a moment ago, and the focus is in the frame. */
  get #isClicked() {
    const root = this.element.getRootNode();
    const focused = root instanceof Document || root instanceof ShadowRoot ? root.activeElement : null;
    return navigator.userActivation.isActive && focused === this.frame;
  }

  /** @param {unknown} action */
  async #act(action) {
    // A script can send without a person. Whoever clicked in the frame has activated this page, and the focus is in the
    // frame then. A click elsewhere activates this page as well, and the frame can take the focus by a script: so an
    // action waits until such a click does not count any more. What is active then was a click in the frame.
    if (!this.#isClicked) return setText(this.note, DROPPED);
    const number = ++this.actions;
    const { touchedMs, viewer } = this;
    const waitMs = touchedMs + CLICK_MS - performance.now();
    if (waitMs > 0) {
      setText(this.note, "An action waits for some seconds, because this page was clicked just before.");
      await new Promise((settle) => setTimeout(settle, waitMs));
      if (number !== this.actions || viewer !== this.viewer) return undefined;
      if (touchedMs !== this.touchedMs || !this.#isClicked) return setText(this.note, DROPPED);
    }
    let text = "";
    try {
      text = JSON.stringify(action) ?? "";
    } catch {
      return undefined;
    }
    if (!text.startsWith("{") || text.length > MAX_ACTION) return setText(this.note, "An action was too long to be sent.");
    if (!this.desk.may("canvas_act")) return setText(this.note, "Nobody runs this tree: the action was not sent.");
    const given = { session: this.session, id: crypto.randomUUID(), action: JSON.parse(text) };
    try {
      await this.desk.ask("canvas_act", given);
      setText(this.note, `Sent to ${this.session}. It approves nothing.`);
    } catch (error) {
      setText(this.note, wordsOf(error));
    }
    return undefined;
  }
}
