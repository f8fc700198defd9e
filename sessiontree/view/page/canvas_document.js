/**
 * The document that a canvas's frame shows, as text: what it looks like now, without what runs or loads in it.
 *
 * It is only for a picture. Whoever draws it keeps scripts and the network away from it anyway.
 */

const MAX_NODES = 20_000;
const REMOVED = "script,noscript,template,iframe,frame,object,embed,base,meta,link";

/** @returns {string} The document; empty if it is too large for a picture. */
export function documentText() {
  const shown = document.documentElement;
  if (shown.querySelectorAll("*").length > MAX_NODES) return "";
  const copy = /** @type {Element} */ (shown.cloneNode(true));
  const copies = copy.querySelectorAll("*");
  // pair by pair, before anything is removed: a copy does not have what was entered or drawn
  shown.querySelectorAll("*").forEach((element, at) => keepState(element, copies[at]));
  for (const each of copy.querySelectorAll(REMOVED)) each.remove();
  for (const sheet of document.adoptedStyleSheets) {
    const style = document.createElement("style");
    style.textContent = [...sheet.cssRules].map((rule) => rule.cssText).join("\n");
    copy.querySelector("head")?.append(style);
  }
  return copy.outerHTML;
}

/** @param {Element} element @param {Element} copy */
function keepState(element, copy) {
  if (element instanceof HTMLInputElement) {
    const { type, value } = element;
    if (type === "password") copy.setAttribute("value", "•".repeat(Math.min(value.length, 8)));
    else if (type !== "file") copy.setAttribute("value", value);
    copy.toggleAttribute("checked", element.checked);
  } else if (element instanceof HTMLTextAreaElement) {
    copy.textContent = element.value;
  } else if (element instanceof HTMLOptionElement) {
    copy.toggleAttribute("selected", element.selected);
  } else if (element instanceof HTMLCanvasElement) {
    const image = document.createElement("img");
    image.src = drawn(element);
    image.style.setProperty("width", `${element.clientWidth}px`);
    image.style.setProperty("height", `${element.clientHeight}px`);
    copy.replaceWith(image);
  }
}

/** @param {HTMLCanvasElement} canvas @returns {string} */
function drawn(canvas) {
  try {
    return canvas.toDataURL();
  } catch {
    return "data:,"; // it holds pixels of elsewhere
  }
}
