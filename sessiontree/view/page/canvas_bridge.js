/**
 * The script at the beginning of a canvas's frame: it answers the page around it, and sends actions there.
 *
 * It runs beside whatever the frame shows, which can lie in its place: nobody trusts what comes out of a frame.
 */

import { documentText } from "./canvas_document.js";

/** @typedef {Record<string, any>} Said */

const MAX_ANSWER_CHARS = 60_000;
const MAX_PICTURE_BYTES = 200_000; // as the console sends it: a string in JSON
const MAX_OUTLINE_LINES = 800;
const MAX_LINE_CHARS = 300;
const MAX_NODES_READ = 20_000;
const SILENT = new Set(["SCRIPT", "STYLE", "TEMPLATE", "NOSCRIPT", "HEAD", "TITLE", "META", "LINK"]);
const NAMED = new Map([
  ["A", "link"], ["BUTTON", "button"], ["IMG", "image"], ["SELECT", "choice"], ["TEXTAREA", "field"],
  ["LI", "item"], ["TD", "cell"], ["TH", "cell"], ["LABEL", "label"], ["SUMMARY", "summary"], ["LEGEND", "group"],
  ["DIALOG", "dialog"], ["NAV", "navigation"], ["TABLE", "table"], ["FORM", "form"],
]);

/** @param {Said} said Says something to the page around the frame. */
export function sayAbove(said) {
  parent.postMessage(said, "*"); // only the console may have this frame, and nothing secret goes out of it
}

/** Answers the page around the frame from now on. */
export function openBridge() {
  addEventListener("message", async (event) => {
    if (event.source !== parent || !event.data) return;
    const { kind, id, code } = event.data;
    if (kind === "eval") sayAbove({ kind: "answer", id, text: await runScript(String(code)) });
    if (kind === "snapshot") sayAbove({ kind: "answer", id, text: described(String(code)) });
  });
  Object.defineProperty(globalThis, "sendAction", {
    value: (/** @type {unknown} */ name, /** @type {unknown} */ context = {}) =>
      sayAbove({ kind: "action", action: { name: String(name), context } }),
  });
  if (document.readyState === "complete") sayAbove({ kind: "ready" });
  else addEventListener("load", () => sayAbove({ kind: "ready" }));
}

/** @param {string} wanted `document` = with the document, if it is short enough to be sent. @returns {string} */
function described(wanted) {
  const said = outline();
  if (wanted !== "document") return bounded(said);
  try {
    const text = JSON.stringify({ ...said, html: documentText() });
    if (new TextEncoder().encode(JSON.stringify(text)).length <= MAX_PICTURE_BYTES) return text;
  } catch {
    // the page changed what this needs; there is no picture of it
  }
  return bounded(said);
}

/** @param {string} code @returns {Promise<string>} */
async function runScript(code) {
  try {
    const value = await (0, eval)(code);
    return bounded({ value: value === undefined ? null : value });
  } catch (error) {
    return bounded({ error: String(error).slice(0, 2000) });
  }
}

/** @param {Said} said @returns {string} */
function bounded(said) {
  try {
    const text = JSON.stringify(said);
    if (text.length <= MAX_ANSWER_CHARS) return text;
    return JSON.stringify({ error: `the answer has ${text.length} characters, at most ${MAX_ANSWER_CHARS} are taken` });
  } catch (error) {
    return JSON.stringify({ error: `the answer has no JSON form: ${String(error).slice(0, 200)}` });
  }
}

/** What the frame shows, as a reader of the screen would say it: one line for each part, in order. */
export function outline() {
  /** @type {string[]} */
  const lines = [];
  let left = MAX_NODES_READ;
  const walk = (/** @type {Node} */ node, /** @type {number} */ depth) => {
    if (lines.length >= MAX_OUTLINE_LINES || left-- <= 0 || depth > 60) return;
    if (node instanceof Text) return void add(lines, "", node.data);
    if (!(node instanceof Element) || SILENT.has(node.tagName) || isHidden(node)) return;
    const line = lineOf(node);
    if (line) add(lines, line[0], line[1], node.getAttribute("data-component"));
    if (!line || line[2]) for (const child of node.childNodes) walk(child, depth + 1);
  };
  if (document.body) walk(document.body, 0);
  const text = lines.join("\n");
  return {
    title: document.title.slice(0, MAX_LINE_CHARS), width: innerWidth, height: innerHeight, scroll: Math.round(scrollY),
    text: text.slice(0, MAX_ANSWER_CHARS / 2), is_whole: lines.length < MAX_OUTLINE_LINES && left > 0,
  };
}

/** @param {string[]} lines @param {string} what @param {string} text @param {string|null} [component] */
function add(lines, what, text, component = null) {
  const words = text.replaceAll(/\s+/g, " ").trim().slice(0, MAX_LINE_CHARS);
  if (!words && !what) return;
  lines.push(`${what ? `${what}: ` : ""}${words}${component ? ` [${component}]` : ""}`);
}

/** @param {Element} element */
function isHidden(element) {
  if (element.hasAttribute("hidden") || element.getAttribute("aria-hidden") === "true") return true;
  if (element.tagName === "DIALOG" && !element.hasAttribute("open")) return true;
  const style = getComputedStyle(element);
  return style.display === "none" || style.visibility === "hidden";
}

/**
 * @param {Element} element
 * @returns {[string, string, boolean]|null} What it is, its words, and whether its children are read, too.
 */
function lineOf(element) {
  const tag = element.tagName;
  const label = element.getAttribute("aria-label") ?? "";
  const heading = /^H([1-6])$/.exec(tag);
  if (heading) return [`heading ${heading[1]}`, label || (element.textContent ?? ""), false];
  if (element instanceof HTMLInputElement) return inputLine(element);
  if (element instanceof HTMLTextAreaElement) return ["field", `${nameOf(element)} = ${element.value}`, false];
  if (element instanceof HTMLSelectElement) return ["choice", `${nameOf(element)} = ${element.value}`, false];
  if (element instanceof HTMLImageElement) return ["image", label || element.alt, false];
  if (tag === "A" || tag === "BUTTON") {
    const state = /** @type {HTMLButtonElement} */ (element).disabled ? " (disabled)" : "";
    return [NAMED.get(tag) ?? "", (label || (element.textContent ?? "")) + state, false];
  }
  const role = element.getAttribute("role");
  if (label && role) return [role, label, true];
  return null;
}

/** @param {HTMLInputElement} input @returns {[string, string, boolean]|null} */
function inputLine(input) {
  const { type } = input;
  if (type === "hidden") return null;
  if (type === "checkbox" || type === "radio") return [type, `${nameOf(input)} = ${input.checked}`, false];
  const value = type === "password" ? "•".repeat(Math.min(input.value.length, 8)) : input.value;
  return ["field", `${nameOf(input)} = ${value}`, false];
}

/** @param {HTMLInputElement|HTMLTextAreaElement|HTMLSelectElement} input */
function nameOf(input) {
  return input.getAttribute("aria-label") || input.labels?.[0]?.textContent?.trim() || input.name;
}
