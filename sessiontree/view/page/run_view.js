/** `<run-view>`: benchmark runs, from whatever place they are given; the address says what is shown. */

import { make, makeButton, makePlaceLink, placeOf, setText } from "./elements.js";
import { RunListPage } from "./run_list.js";
import { RunPage } from "./run_page.js";
import { PairPage } from "./run_pair.js";
import { makeRunSheet } from "./run_styles.js";
import { makeRunName } from "./run_words.js";
import { makePageSheet } from "./styles.js";
import { formatNumber, wordsOf } from "./text.js";

/** @import { RunHeadFacts } from "./run_model.js" */
/** @import { RunsPlace } from "./source_runs.js" */

const NARROW_RUN_PX = 760;
const RUN_KEYS = [
  ["↑ ↓ Page Home End", "go through the samples"], ["Enter", "open a sample"], ["j k", "next, previous sample"],
  ["f", "sample at full width"], ["/", "filter by text"], ["Esc", "close the sample; clear the filter"], ["?", "these keys"],
];
const LINK_WORDS = new Map([["reconnecting", "Reconnecting…"],
  ["closed", "The server has ended; this is the last that was seen."],
  ["refused", "Another server answers here; open the address that it printed. This is the last that was seen."]]);

/** The element; set its property `place`. */
export class RunView extends HTMLElement {
  constructor() {
    super();
    this.attachShadow({ mode: "open" });
    const root = /** @type {ShadowRoot} */ (this.shadowRoot);
    root.adoptedStyleSheets = [makeRunSheet()];
    this.home = make("span");
    this.headline = make("h1");
    this.under = make("p", { class: "totals" });
    this.banner = make("p", { class: "banner", role: "status", hidden: true });
    const keys = makeButton("?", () => this.openKeys(), { class: "keys-button", "aria-label": "Keys" });
    this.body = make("div", { class: "body-of-runs" });
    this.dialog = make("dialog", { "aria-label": "Keys" });
    const titles = make("div", { class: "titles" }, this.headline, this.under);
    this.frame = make("div", { class: "frame" },
      make("header", {}, make("div", { class: "top" }, this.home, titles, keys), this.banner), this.body, this.dialog);
    this.spoken = make("div", { class: "unseen", "aria-live": "polite", role: "status" });
    root.append(this.frame, this.spoken);
    /** @type {RunsPlace} */
    this.place = /** @type {any} */ (null);
    /** @type {RunListPage|RunPage|PairPage|null} */
    this.page = null;
    this.pageName = "";
    this.isNarrow = false;
    this.isSingle = false;
    this.listen = () => this.#follow();
    this.hear = (/** @type {any} */ event) => this.#press(event);
  }

  connectedCallback() {
    this.sizes = new ResizeObserver(() => this.#measure());
    this.sizes.observe(this);
    addEventListener("hashchange", this.listen);
    const place = this.hasAttribute("page") ? document : this.frame;
    place.addEventListener("keydown", this.hear);
    this.#begin();
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    removeEventListener("hashchange", this.listen);
    document.removeEventListener("keydown", this.hear);
    this.page?.end();
  }

  async #begin() {
    setText(this.headline, "Runs");
    try {
      const runs = await this.place.list();
      this.isSingle = runs.length === 1;
    } catch (error) {
      return this.#fail(error);
    }
    return this.#follow();
  }

  /** Shows what the address says. */
  async #follow() {
    const parts = location.hash.replace(/^#?\/?/, "").split("/").map(decodeSafely);
    const [kind, first, second] = parts[0] ? parts : this.isSingle ? ["run", "0"] : ["runs"];
    const name = kind === "pair" ? `pair ${first} ${second}` : kind === "run" ? `run ${first}` : "runs";
    if (name !== this.pageName) await this.#open(name, kind, Number(first), Number(second));
    if (this.page instanceof RunPage) this.page.show(parts[2] === "sample" ? parts[3] : "", parts[4] ?? "1");
    if (this.page instanceof PairPage) this.page.show(parts[3] === "sample" ? parts[4] : "");
  }

  /** @param {string} name @param {string} kind @param {number} first @param {number} second */
  async #open(name, kind, first, second) {
    this.page?.end();
    this.pageName = name;
    this.note("connected");
    const page = kind === "run" ? new RunPage(this, first)
      : kind === "pair" ? new PairPage(this, first, second) : new RunListPage(this);
    this.page = page;
    this.home.replaceChildren(...(name === "runs" || this.isSingle ? [] : [this.#makeHome()]));
    this.body.replaceChildren(page.element);
    try {
      await page.open();
    } catch (error) {
      if (this.page === page) this.#fail(error);
    }
    this.#measure();
  }

  #makeHome() {
    const link = makePlaceLink(["runs"], "Runs");
    link.className = "home";
    return link;
  }

  /** @param {unknown} error */
  #fail(error) {
    this.pageName = "";
    this.body.replaceChildren(make("p", { class: "fault empty", role: "alert" }, wordsOf(error), " ",
      makeButton("Try again", () => this.#follow())));
  }

  /** @param {(string|number)[]} parts Goes to a place of the page. */
  go(parts) {
    location.hash = placeOf(parts);
  }

  /** @param {RunHeadFacts} head Says in the head which run is shown. */
  tellRun(head) {
    this.headline.replaceChildren(makeRunName(head));
    const done = head.scored === head.total ? "every sample is scored" : "not every sample is scored";
    const state = head.is_live ? "● live" : done;
    const facts = [head.release, ...(head.tags ?? []), state].filter(Boolean);
    this.under.replaceChildren(...facts.map((each) =>
      make("span", { class: each.startsWith("●") ? "live" : "" }, make("bdi", {}, each))));
    document.title = `${head.suite} · sessiontree`;
  }

  /** @param {RunHeadFacts[]} runs */
  tellList(runs) {
    setText(this.headline, "Benchmark runs");
    const live = runs.filter((run) => run.is_live).length;
    this.under.replaceChildren(make("span", {}, `${formatNumber(runs.length, "run")}${live ? `, ${live} live` : ""}`));
  }

  /** @param {RunHeadFacts[]} heads */
  tellPair(heads) {
    setText(this.headline, "Two runs, sample by sample");
    this.under.replaceChildren(...heads.map((head) => make("span", {}, makeRunName(head))));
  }

  /** @param {string} status How the page is connected. */
  note(status) {
    const words = LINK_WORDS.get(status) ?? "";
    this.banner.hidden = !words;
    setText(this.banner, words);
  }

  /** @param {string} words Says something to who listens instead of looking. */
  say(words) {
    this.spoken.replaceChildren(make("p", {}, words));
  }

  /** The name of the field or the link that has the focus. */
  focusedName() {
    return this.shadowRoot?.activeElement?.getAttribute("name") ?? "";
  }

  /** @param {string} name */
  focusNamed(name) {
    if (!name) return;
    const named = [...(this.shadowRoot?.querySelectorAll("[name]") ?? [])];
    const found = named.find((each) => each.getAttribute("name") === name);
    /** @type {HTMLElement|undefined} */ (found)?.focus();
  }

  #measure() {
    this.isNarrow = this.clientWidth < NARROW_RUN_PX;
    this.frame.classList.toggle("narrow", this.isNarrow);
    this.page?.measure(this.isNarrow);
  }

  openKeys() {
    const rows = RUN_KEYS.flatMap(([key, words]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)]);
    this.dialog.replaceChildren(make("h2", {}, "Keys"), make("dl", { class: "keys" }, ...rows),
      makeButton("Close", () => this.dialog.close(), { class: "primary" }));
    this.dialog.showModal();
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const from = /** @type {Element} */ (event.composedPath()[0]);
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const isOurs = from.getRootNode() === this.shadowRoot || from.getRootNode() === document;
    if (!isOurs || from.closest("dialog")) return; // keys of a tree are the tree's
    if (from.matches("input:not([type=checkbox]), textarea, select")) {
      if (event.key === "Escape") /** @type {HTMLElement|null} */ (this.body.querySelector("[role=grid]"))?.focus();
      return;
    }
    if (event.key === "?") this.openKeys();
    else if (!this.page?.press(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** @param {string} text */
function decodeSafely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Puts runs into a page.
 * @param {HTMLElement} host
 * @param {RunsPlace} place
 * @param {"light"|"dark"|""} [theme] Empty = as the reader's system has it.
 */
export function mountRuns(host, place, theme = "") {
  if (!customElements.get("run-view")) customElements.define("run-view", RunView);
  const element = /** @type {RunView} */ (document.createElement("run-view"));
  if (theme) element.setAttribute("theme", theme);
  if (host === document.body) {
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, makePageSheet()];
    element.setAttribute("page", "");
  }
  element.place = place;
  host.append(element);
  return element;
}
