/** What a person does to a session: its menu, and the dialogs that ask before something happens. */

import { make, makeButton, makeForeign, makeTreeLink, setText } from "./elements.js";
import { makeReceipt } from "./reports.js";
import { formatNumber, wordsOf } from "./text.js";

/** @import { Desk } from "./session_tree.js" */

/** @typedef {"steer"|"interrupt"|"cancel"} ActVerb */

const ACTS = /** @type {const} */ ({
  steer: { words: "Steer…", key: "⇧S", title: "Steer", hint: "What it is told before its next step", send: "Send" },
  interrupt: { words: "Interrupt…", key: "⇧I", title: "Interrupt the turn of", hint: "Reason (optional)",
    send: "Interrupt" },
  cancel: { words: "Cancel…", key: "⇧X", title: "Cancel", hint: "Reason (optional)", send: "Cancel the session" },
});
const KEYS = [
  ["↑ ↓", "previous, next session"], ["← →", "fold or to the parent, open or to the first below"],
  ["Home End", "first, last session"], ["letters", "go to a session by its name"],
  ["Enter", "read the session"], ["Esc", "back to the sessions"], ["*", "fold or open all"],
  ["/", "filter"], ["⇧N", "next failure, with its path opened"],
  [". or ⇧F10", "actions of the session"], ["⇧S ⇧I ⇧X", "steer, interrupt, cancel"],
  ["g", "first request that waits for you"], ["a d ⇧A", "on a request: approve, deny, always"],
  ["r", "on a request: write a reason"], ["?", "these keys"],
];

/** The menu of a session and the dialogs; one is open at a time. */
export class ActionsView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.dialog = make("dialog", {});
    this.menu = make("div", { class: "menu", role: "menu", hidden: true, "aria-label": "Actions of the session" });
    this.element = make("div", { class: "overlays" }, this.menu, this.dialog);
    /** @type {HTMLElement|null} */
    this.opener = null;
    this.menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#press(event));
    this.menu.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
      if (!this.menu.contains(/** @type {Node|null} */ (event.relatedTarget))) this.menu.hidden = true;
    });
    this.dialog.addEventListener("close", () => {
      if (this.dialog.open) return; // the event comes late: the next dialog is open by now
      this.dialog.replaceChildren();
      this.opener?.focus();
    });
  }

  /** @param {string} path @param {Element} near */
  openMenu(path, near) {
    const { model } = this.desk;
    const row = model.numberOf(path);
    if (row === undefined) return;
    this.menu.replaceChildren();
    const add = (/** @type {string} */ words, /** @type {string} */ key, /** @type {() => void} */ act) => {
      const item = makeButton(words, () => this.#leaveMenu(act), { role: "menuitem", tabindex: -1 });
      if (key) item.append(make("kbd", {}, key));
      this.menu.append(item);
    };
    add("Read the transcript", "Enter", () => this.desk.show(path, true));
    if (this.desk.reads("policy")) add("Explain its tools", "", () => this.desk.show(path, true, undefined, "policy"));
    for (const verb of /** @type {ActVerb[]} */ (Object.keys(ACTS))) {
      if (this.desk.mayOn(verb, path)) add(ACTS[verb].words, ACTS[verb].key, () => this.openAct(verb, path));
    }
    this.#placeMenu(near);
    /** @type {HTMLElement|null} */ (this.menu.firstElementChild)?.focus();
  }

  /** @param {Element} near */
  #placeMenu(near) {
    this.menu.hidden = false;
    const host = /** @type {Element} */ (this.element.closest(".frame")).getBoundingClientRect();
    const box = near.getBoundingClientRect();
    const left = Math.max(4, Math.min(box.right - host.left - 220, host.width - 230));
    const top = Math.max(4, Math.min(box.bottom - host.top, host.height - this.menu.offsetHeight - 8));
    this.menu.style.setProperty("left", `${Math.round(left)}px`);
    this.menu.style.setProperty("top", `${Math.round(top)}px`);
  }

  /** @param {() => void} act */
  #leaveMenu(act) {
    this.menu.hidden = true;
    act();
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const items = /** @type {HTMLElement[]} */ ([...this.menu.children]);
    const root = /** @type {ShadowRoot} */ (this.menu.getRootNode());
    const at = items.findIndex((item) => item === root.activeElement);
    if (event.key === "ArrowDown") items[(at + 1) % items.length].focus();
    else if (event.key === "ArrowUp") items[(at - 1 + items.length) % items.length].focus();
    else if (event.key === "Home") items[0].focus();
    else if (event.key === "End") items[items.length - 1].focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      this.menu.hidden = true;
      this.desk.focusRows();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * @param {ActVerb} verb
   * @param {string} path
   */
  openAct(verb, path) {
    if (!this.desk.mayOn(verb, path)) return this.desk.say(`${ACTS[verb].send} is not possible here.`);
    const act = ACTS[verb];
    const input = make(verb === "steer" ? "textarea" : "input", {
      rows: verb === "steer" ? 4 : null, maxlength: 20_000, "aria-label": act.hint, placeholder: act.hint,
    });
    const row = this.desk.model.numberOf(path) ?? 0;
    const below = this.desk.model.sums[row].live - 1;
    const parts = [input];
    if (verb === "cancel") {
      const also = below > 0 ? ` and ${formatNumber(below, "live session")} below it` : "";
      parts.unshift(make("p", {}, `This ends the session${also}. It cannot be undone.`));
    }
    const send = async () => {
      const words = input.value.trim();
      if (verb === "steer" && !words) throw new Error("Write what it is told.");
      const given = verb === "steer" ? { session: path, text: words } : { session: path, reason: words };
      const answer = await this.desk.ask(verb, given);
      if (verb !== "cancel" || !answer?.lines) return null;
      return makeReceipt(this.desk, answer.lines);
    };
    this.#openDialog([`${act.title} `, makeForeign(path)], parts, act.send, verb === "cancel", send);
    input.focus();
    return undefined;
  }

  /** @param {number} seq */
  openFork(seq) {
    const words = "A new tree begins with all that happened up to here. This one stays as it is.";
    this.#openDialog([`Fork after fact ${seq}`], [make("p", {}, words)], "Fork", false, async () => {
      const { tree_id: tree, at } = await this.desk.ask("fork", { at: seq });
      const name = this.desk.given?.hasPages ? makeTreeLink(tree, tree) : makeForeign(tree);
      return make("p", {}, "The new tree is ", name, `; it shares the facts up to ${at ?? seq}.`);
    });
  }

  openKeys() {
    const list = make("dl", { class: "keys" });
    for (const [keys, words] of KEYS) list.append(make("dt", {}, make("kbd", {}, keys)), make("dd", {}, words));
    this.#openDialog(["Keys"], [list], "", false, null);
  }

  /**
   * @param {(string|Node)[]} heading
   * @param {HTMLElement[]} parts
   * @param {string} words
   * @param {boolean} isDanger
   * @param {(() => Promise<HTMLElement|null>)|null} send Returns what to show when it is done; null closes.
   */
  #openDialog(heading, parts, words, isDanger, send) {
    const root = /** @type {ShadowRoot} */ (this.element.getRootNode());
    this.opener = /** @type {HTMLElement|null} */ (root.activeElement) ?? this.opener;
    const title = make("h2", { id: "dialog-title" });
    title.append(...heading);
    const fault = make("p", { class: "fault", role: "alert" });
    const close = makeButton(send ? "Do nothing" : "Close", () => this.dialog.close());
    const buttons = make("div", { class: "buttons" }, close);
    const form = make("form", {}, title, ...parts, fault, buttons);
    if (send) buttons.prepend(make("button", { type: "submit", class: isDanger ? "danger" : "primary" }, words));
    form.addEventListener("submit", async (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!send || form.hasAttribute("aria-busy")) return;
      form.setAttribute("aria-busy", "true");
      try {
        const shown = await send();
        if (shown === null) return this.dialog.close();
        form.replaceChildren(title, shown, make("div", { class: "buttons" }, close));
        setText(close, "Close");
        close.focus();
      } catch (error) {
        setText(fault, wordsOf(error));
      } finally {
        form.removeAttribute("aria-busy");
      }
      return undefined;
    });
    this.dialog.setAttribute("aria-labelledby", "dialog-title");
    this.dialog.replaceChildren(form);
    this.dialog.showModal();
  }
}
