/** Draws A2UI surfaces: the basic components, as elements that hold texts and never markup. */

import { build, makeInput, readInput } from "./surface_inputs.js";
import { TOP } from "./surface_model.js";

/** @import { Component, Scope, SurfaceModel } from "./surface_model.js" */

/** @typedef {{id: string, model: SurfaceModel, left: number}} Drawing A surface, and how many parts it may have still. */

const MAX_PARTS = 2_000;
const MAX_DEEP = 40;
const JUSTIFY = new Map([
  ["center", "center"], ["end", "flex-end"], ["spaceAround", "space-around"], ["spaceBetween", "space-between"],
  ["spaceEvenly", "space-evenly"], ["start", "flex-start"], ["stretch", "stretch"],
]);
const ALIGN = new Map([["start", "flex-start"], ["center", "center"], ["end", "flex-end"], ["stretch", "stretch"]]);
const TEXTS = new Map([["h1", "h1"], ["h2", "h2"], ["h3", "h3"], ["h4", "h4"], ["h5", "h5"]]);
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;
const ICONS = new Map(Object.entries({ // signs that the usual fonts have, without colour of their own
  accountCircle: "☺", add: "+", arrowBack: "←", arrowForward: "→", attachFile: "⌁", calendarToday: "▦", call: "☎",
  camera: "◉", check: "✓", close: "✕", delete: "⌫", download: "↓", edit: "✎", event: "▦", error: "⊗", favorite: "♥",
  favoriteOff: "♡", folder: "▤", help: "?", home: "⌂", info: "ℹ", locationOn: "⌖", lock: "▣", lockOpen: "▢", mail: "✉",
  menu: "≡", moreVert: "⋮", moreHoriz: "⋯", notifications: "♪", notificationsOff: "♩", payment: "▭", person: "☺",
  phone: "☎", photo: "▨", play: "▶", pause: "‖", stop: "■", print: "⎙", refresh: "↻", search: "⌕", send: "➤",
  settings: "⚙", share: "↗", shoppingCart: "⊞", star: "★", starHalf: "☆", starOff: "☆", upload: "↑", visibility: "◎",
  visibilityOff: "⊘", warning: "⚠", volumeUp: "♫", volumeOff: "♪", skipNext: "»", skipPrevious: "«", rewind: "«",
  fastForward: "»", volumeDown: "♩", volumeMute: "♩",
}));

/** Draws all surfaces of a canvas into an element. */
export class SurfacesView {
  /**
   * @param {HTMLElement} place
   * @param {(action: object) => void} send Sends an action above.
   */
  constructor(place, send) {
    this.place = place;
    this.send = send;
    /** @type {Map<string, SurfaceModel>} */
    this.surfaces = new Map();
    /** @type {Map<string, number>} By key of a component the tab that is open. */
    this.tabs = new Map();
    /** @type {Set<string>} Keys of the dialogs that are open. */
    this.dialogs = new Set();
  }

  draw() {
    const active = /** @type {HTMLElement|null} */ (document.activeElement);
    const key = active?.dataset.key;
    const range = active instanceof HTMLInputElement || active instanceof HTMLTextAreaElement ? rangeOf(active) : null;
    const parts = [...this.surfaces].map(([id, model]) => this.#surface(id, model));
    this.place.replaceChildren(...parts);
    for (const dialog of this.place.querySelectorAll("dialog")) {
      if (this.dialogs.has(dialog.dataset.dialog ?? "")) dialog.showModal();
    }
    if (key === undefined) return;
    const next = [...this.place.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === key);
    if (!(next instanceof HTMLElement)) return;
    next.focus({ preventScroll: true });
    if (range && (next instanceof HTMLInputElement || next instanceof HTMLTextAreaElement)) setRange(next, range);
  }

  /** @param {string} id @param {SurfaceModel} model */
  #surface(id, model) {
    const section = build("section", "surface");
    if (model.color) {
      section.style.setProperty("--accent", model.color);
      section.style.setProperty("--on-accent", isLight(model.color) ? "#111111" : "#ffffff");
    }
    /** @type {Drawing} */
    const drawing = { id, model, left: MAX_PARTS };
    const part = model.root ? this.#part(drawing, model.root, TOP, []) : null;
    section.append(part ?? build("p", "empty", "This surface shows nothing yet."));
    return section;
  }

  /**
   * @param {Drawing} drawing
   * @param {string} id
   * @param {Scope} scope
   * @param {string[]} above Ids of the components that this one is in.
   * @returns {HTMLElement|null} Null for a component that did not come yet.
   */
  #part(drawing, id, scope, above) {
    const component = drawing.model.components.get(id);
    if (!component) return null;
    const at = `${id} ${scope.path}`; // within another item of a list it is another part
    if (above.includes(at)) return build("p", "fault", `${id} contains itself`);
    if (drawing.left-- <= 0 || above.length >= MAX_DEEP) return build("p", "fault", "…");
    const way = [...above, at];
    const inner = (/** @type {string} */ child) => this.#part(drawing, child, scope, way);
    const element = this.#element(drawing, component, scope, way, inner);
    element.setAttribute("data-component", id);
    if (typeof component.weight === "number") element.style.setProperty("flex-grow", String(component.weight));
    this.#describe(drawing.model, component, scope, element);
    return element;
  }

  /** @param {SurfaceModel} model @param {Component} component @param {Scope} scope @param {HTMLElement} element */
  #describe(model, component, scope, element) {
    const given = component.accessibility ?? {};
    if (given.label !== undefined) element.setAttribute("aria-label", model.text(given.label, scope));
    if (given.description !== undefined) element.setAttribute("aria-description", model.text(given.description, scope));
    if (model.value(given.hidden, scope) === true) element.setAttribute("aria-hidden", "true");
    if (given.live === "polite" || given.live === "assertive") element.setAttribute("aria-live", given.live);
  }

  /**
   * @param {Drawing} drawing
   * @param {Component} component
   * @param {Scope} scope
   * @param {string[]} way
   * @param {(child: string) => HTMLElement|null} inner
   * @returns {HTMLElement}
   */
  #element(drawing, component, scope, way, inner) {
    const { model } = drawing;
    switch (component.component) {
      case "Text": return makeText(model.text(component.text, scope), component.variant);
      case "Image": return makePicture(model, component, scope);
      case "Icon": return makeIcon(model.text(component.name, scope));
      case "Video": case "AudioPlayer": return makeMissing(component.component, model.text(component.url, scope));
      case "Row": case "Column": case "List": return this.#list(drawing, component, scope, way);
      case "Card": return build("div", "card", inner(component.child) ?? "");
      case "Divider": return build("hr", component.axis === "vertical" ? "vertical" : "");
      case "Tabs": return this.#tabs(drawing, component, scope, inner);
      case "Modal": return this.#modal(drawing, component, scope, inner);
      case "Button": return this.#button(drawing, component, scope, inner);
      default: return this.#input(drawing, component, scope);
    }
  }

  /** @param {Drawing} drawing @param {Component} component @param {Scope} scope @param {string[]} way */
  #list(drawing, component, scope, way) {
    const isRow = component.component === "Row" || component.direction === "horizontal";
    const element = build("div", `${component.component.toLowerCase()} ${isRow ? "across" : "down"}`);
    const justify = JUSTIFY.get(component.justify), align = ALIGN.get(component.align);
    if (justify) element.style.setProperty("justify-content", justify);
    if (align) element.style.setProperty("align-items", align);
    for (const [child, place] of drawing.model.childrenOf(component.children, scope)) {
      const part = this.#part(drawing, child, place, way);
      if (part) element.append(part);
    }
    return element;
  }

  /** @param {Drawing} drawing @param {Component} component @param {Scope} scope @param {(child: string) => any} inner */
  #tabs(drawing, component, scope, inner) {
    const key = keyOf(drawing, component, scope);
    const open = Math.min(this.tabs.get(key) ?? 0, component.tabs.length - 1);
    const bar = build("div", "tabs");
    bar.setAttribute("role", "tablist");
    component.tabs.forEach((/** @type {any} */ tab, /** @type {number} */ number) => {
      const button = build("button", "", drawing.model.text(tab.title, scope));
      button.type = "button";
      button.dataset.key = `${key} ${number}`;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-selected", String(number === open));
      button.addEventListener("click", () => {
        this.tabs.set(key, number);
        this.draw();
      });
      bar.append(button);
    });
    const panel = build("div", "panel", inner(component.tabs[open].child) ?? "");
    panel.setAttribute("role", "tabpanel");
    return build("div", "tabbed", bar, panel);
  }

  /** @param {Drawing} drawing @param {Component} component @param {Scope} scope @param {(child: string) => any} inner */
  #modal(drawing, component, scope, inner) {
    const key = keyOf(drawing, component, scope);
    const trigger = build("div", "trigger", inner(component.trigger) ?? "");
    trigger.addEventListener("click", () => {
      this.dialogs.add(key);
      this.draw();
    });
    const close = build("button", "close", "✕");
    close.type = "button";
    close.setAttribute("aria-label", "Close");
    const dialog = build("dialog", "", close, inner(component.content) ?? "");
    dialog.dataset.dialog = key;
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => this.dialogs.delete(key));
    return build("div", "modal", trigger, dialog);
  }

  /** @param {Drawing} drawing @param {Component} component @param {Scope} scope @param {(child: string) => any} inner */
  #button(drawing, component, scope, inner) {
    const { model } = drawing;
    const button = build("button", component.variant ?? "default", inner(component.child) ?? component.id);
    const failures = model.failures(component, scope);
    button.type = "button";
    button.dataset.key = keyOf(drawing, component, scope);
    button.disabled = failures.length > 0;
    if (failures.length) button.title = failures.join(" ");
    button.addEventListener("click", () => {
      const { event } = component.action;
      this.send({
        surface: drawing.id, component: component.id, name: event.name, context: model.contextOf(event, scope),
        ...(model.sendsData ? { data: model.data } : {}),
      });
    });
    return button;
  }

  /** @param {Drawing} drawing @param {Component} component @param {Scope} scope */
  #input(drawing, component, scope) {
    const { model } = drawing;
    const failures = model.edits.size ? model.failures(component, scope) : []; // nothing is wrong before a first entry
    const element = makeInput(model, component, scope, keyOf(drawing, component, scope), failures);
    const enter = (/** @type {Event} */ event) => {
      const value = readInput(component, element);
      if (model.enter(component.value, scope, value) && event.type === "change") this.draw();
      else if (component.component === "Slider" || component.component === "TextField") this.#refresh();
    };
    element.addEventListener("input", enter);
    element.addEventListener("change", enter);
    return element;
  }

  /** Draws again soon: what is bound to the data may be another. */
  #refresh() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  isDue = false;
}

/** @param {Drawing} drawing @param {Component} component @param {Scope} scope */
function keyOf(drawing, component, scope) {
  return `${drawing.id} ${component.id} ${scope.path}`;
}

/** @param {HTMLInputElement|HTMLTextAreaElement} field @returns {[number, number]|null} */
function rangeOf(field) {
  return field.selectionStart === null ? null : [field.selectionStart, field.selectionEnd ?? field.selectionStart];
}

/** @param {HTMLInputElement|HTMLTextAreaElement} field @param {[number, number]} range */
function setRange(field, range) {
  if (field.selectionStart !== null) field.setSelectionRange(...range);
}

/** @param {string} text @param {string|undefined} variant */
function makeText(text, variant) {
  const element = build(TEXTS.get(variant ?? "") ?? "div", `text ${variant === "caption" ? "caption" : ""}`);
  element.dir = "auto";
  text.split("\n").forEach((line, number) => {
    if (number) element.append(build("br"));
    const head = /^#{1,6} +(.*)$/.exec(line);
    const item = /^\s*[-*] +(.*)$/.exec(line);
    if (head) element.append(build("b", "", ...styled(head[1])));
    else element.append(...(item ? ["• ", ...styled(item[1])] : styled(line)));
  });
  return element;
}

/** @param {string} line Simple marks of a line as elements: bold, emphasis and code. @returns {(Node|string)[]} */
function styled(line) {
  return line.split(/(\*\*[^*]+\*\*|`[^`]+`|\*[^*\s][^*]*\*)/).map((piece) => {
    if (/^\*\*[^*]+\*\*$/.test(piece)) return build("b", "", piece.slice(2, -2));
    if (/^`[^`]+`$/.test(piece)) return build("code", "", piece.slice(1, -1));
    return /^\*[^*\s][^*]*\*$/.test(piece) ? build("i", "", piece.slice(1, -1)) : piece;
  });
}

/** @param {SurfaceModel} model @param {Component} component @param {Scope} scope */
function makePicture(model, component, scope) {
  const url = model.text(component.url, scope), words = model.text(component.description, scope);
  if (!PICTURE.test(url)) return makeMissing("Image", words || url);
  const image = build("img", component.variant ?? "mediumFeature");
  image.alt = words;
  if (component.fit) image.style.setProperty("object-fit", component.fit === "scaleDown" ? "scale-down" : component.fit);
  image.src = url;
  return image;
}

/** @param {string} what @param {string} words What a frame does not load: it would reach the network. */
function makeMissing(what, words) {
  const element = build("div", "missing", build("b", "", what), " ", build("bdi", "", words.slice(0, 200)));
  element.title = "A canvas loads nothing from the network.";
  return element;
}

/** @param {string} name */
function makeIcon(name) {
  const element = build("span", "icon", ICONS.get(name) ?? "◆");
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", name);
  return element;
}

/** @param {string} color */
function isLight(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255);
  return 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2 > 0.3;
}
