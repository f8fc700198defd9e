/**
 * How the page makes elements. Everything that a model, tool or person wrote goes in as text; a cleaned
 * fragment goes in through `insertFragment`, the only place where a text is read as markup.
 */

import { firstLine, glyphOf } from "./text.js";

/** @import { DiffLine } from "./model.js" */

/**
 * @typedef {Record<string, string|number|boolean|null|undefined>} Attributes
 * @typedef {Node|string|null} Child
 */

const ATTRIBUTES = new Set(
  ("class id role type name value for title tabindex placeholder disabled checked open min max step rows " +
    "hidden autocomplete spellcheck maxlength selected colspan scope dir part viewBox x y width height rx d " +
    "x1 x2 y1 y2 text-anchor preserveAspectRatio points").split(" "),
);
const FRAGMENT_TAGS = new Set(
  ("a abbr b blockquote br code dd del dl dt em h1 h2 h3 h4 h5 h6 hr i kbd li ol p pre q s span strong sub " +
    "sup table tbody td th thead tr ul").split(" "),
);
const LINK = /^https?:\/\//i;
const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/**
 * Makes an HTML element. Attributes that load, run or style something cannot be set.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children A string becomes text.
 * @returns {any} Typed loosely: its kind follows from the tag.
 */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Makes an SVG element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {any}
 */
export function makeShape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @param {Element} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!ATTRIBUTES.has(name) && !/^(aria|data)-[a-z]+$/.test(name)) throw new Error(`no attribute ${name}`);
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/**
 * Makes a button.
 * @param {string} words
 * @param {(event: Event) => void} onClick
 * @param {Attributes} [attributes]
 */
export function makeButton(words, onClick, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, words);
  button.addEventListener("click", onClick);
  return button;
}

/**
 * Makes a text of somebody else: its direction of writing does not leak into what surrounds it.
 * @param {string} text
 * @param {string} [name] Its class.
 */
export function makeForeign(text, name = "") {
  return make("bdi", { class: name || null }, text);
}

/** @param {string} state A state as a glyph and a word. */
export function makeState(state) {
  const glyph = make("span", { class: "glyph", "aria-hidden": "true" }, glyphOf(state));
  return make("span", { class: "state", "data-state": state.replaceAll(" ", "-") }, glyph, state);
}

/** @param {Element} element @param {string} text Writes only if the text is another. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {DiffLine[]} lines A diff, as lines whose kind is a sign, a colour and a word for a reader. */
export function makeDiff(lines) {
  const kinds = new Map([["+", "added"], ["-", "removed"], ["@", "place"]]);
  const block = make("pre", { class: "diff", tabindex: 0, role: "group", "aria-label": "changes" });
  for (const [sign, text] of lines) {
    const kind = kinds.get(sign) ?? "same";
    const mark = make("span", { class: "sign" }, sign === "@" ? "⋯" : sign);
    const word = kind === "added" || kind === "removed" ? make("span", { class: "unseen" }, `${kind}: `) : null;
    block.append(make("span", { class: `line ${kind}` }, word, mark, makeForeign(text), "\n"));
  }
  return block;
}

/**
 * Makes a list of arguments, each whole: a long one scrolls.
 * @param {[string, string, boolean][]} given
 * @param {((name: string, block: Element) => void)|null} showWhole Called for an argument that was cut.
 */
export function makeArguments(given, showWhole) {
  const list = make("dl", { class: "arguments" });
  for (const [name, text, isCut] of given) {
    const block = make("pre", { tabindex: text.length > 200 ? 0 : null }, makeForeign(text));
    const value = make("dd", {}, block);
    if (isCut) {
      value.append(make("span", { class: "cut" }, "This is cut. "));
      if (showWhole) value.append(makeButton("Show it whole", () => showWhole(name, block), { class: "link" }));
    }
    list.append(make("dt", {}, makeForeign(name)), value);
  }
  return list;
}

/**
 * Makes a link to the page of a tree of this server.
 * @param {string} id
 * @param {string} words
 */
export function makeTreeLink(id, words) {
  const link = make("a", {}, makeForeign(words));
  link.href = `/t/${encodeURIComponent(id)}`;
  return link;
}

/** Makes a link to the list of trees of this server. */
export function makeHomeLink() {
  const link = make("a", { class: "home", title: "All trees of this server" }, "Trees");
  link.href = "/";
  return link;
}

/**
 * Makes a link to a place of this page.
 * @param {(string|number)[]} parts
 * @param {string} words
 */
export function makePlaceLink(parts, words) {
  const link = make("a", {}, makeForeign(words));
  link.href = `#${placeOf(parts)}`;
  return link;
}

/** @param {(string|number)[]} parts The address of a place of this page, behind `#`. */
export function placeOf(parts) {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

/**
 * Makes an image of a format that cannot run anything; null for another format.
 * @param {string} mime
 * @param {string} base64
 * @param {string} words What a reader hears of it.
 */
export function makeImage(mime, base64, words) {
  if (!IMAGE_TYPES.has(mime) || !/^[A-Za-z0-9+/=\s]*$/.test(base64)) return null;
  const image = document.createElement("img");
  image.alt = firstLine(words);
  image.decoding = "async";
  image.src = `data:${mime};base64,${base64}`;
  return image;
}

/** The policy under which a text may be read as markup: one a page. */
class FragmentPolicy {
  /** @type {{createHTML(text: string): any}|null} */
  static #policy = null;

  static get() {
    const types = /** @type {any} */ (globalThis).trustedTypes;
    const rules = { createHTML: (/** @type {string} */ text) => text };
    this.#policy ??= types ? types.createPolicy("sessiontree", rules) : rules;
    return /** @type {{createHTML(text: string): any}} */ (this.#policy);
  }
}

/**
 * Inserts a fragment that the feed cleaned. It is read in a document that runs and loads nothing, and only
 * elements of a list are copied from there, without attributes but the target of a web link: a second lock.
 * @param {Element} host
 * @param {string} html
 */
export function insertFragment(host, html) {
  const template = document.createElement("template");
  template.innerHTML = FragmentPolicy.get().createHTML(html);
  copyChildren(template.content, host);
}

/**
 * @param {Node} from
 * @param {Node} to
 */
function copyChildren(from, to) {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) to.appendChild(document.createTextNode(node.nodeValue ?? ""));
    if (!(node instanceof HTMLElement)) continue;
    const tag = node.localName;
    if (!FRAGMENT_TAGS.has(tag)) continue;
    const copy = document.createElement(/^h[1-6]$/.test(tag) ? "p" : tag);
    if (/^h[1-6]$/.test(tag)) copy.className = "heading"; // a text's headings are no headings of the page
    if (tag === "pre") copy.tabIndex = 0;
    const target = tag === "a" ? (node.getAttribute("href") ?? "") : "";
    if (copy instanceof HTMLAnchorElement && LINK.test(target)) {
      copy.href = target;
      copy.target = "_blank";
      copy.rel = "noopener noreferrer";
      copy.title = target;
    }
    copyChildren(node, copy);
    to.appendChild(copy);
  }
}
