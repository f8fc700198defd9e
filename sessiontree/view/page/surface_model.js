/**
 * One A2UI surface in its frame: components, data, and the values that follow from both.
 *
 * It is pure. Names that come from outside are looked up as members of their own only, and are written by
 * definition: a name such as `__proto__` is a name like any other.
 */

/**
 * @typedef {{id: string, component: string, weight?: number, [member: string]: any}} Component
 * @typedef {{version: string, root: string, components: Record<string, Component>, data: any, color: string,
 *   sends_data: boolean}} Surface
 * @typedef {{path: string, index: number|null}} Scope Where relative paths begin, and the place in its list.
 */

const MAX_CALLS = 12;
const MAX_MATCHED_CHARS = 1_000;
const MAX_TEXT = 20_000;
const MAX_LIST_ITEMS = 500;
const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/;
/** @type {Scope} */
export const TOP = { path: "", index: null };

/** @param {string} pointer @returns {string[]} */
export function partsOf(pointer) {
  if (pointer === "" || pointer === "/") return [];
  return pointer.replace(/^\//, "").split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** @param {string} path @param {Scope} scope An absolute path. */
export function absolute(path, scope) {
  if (path.startsWith("/") || path === "") return path === "/" ? "" : path;
  return `${scope.path}/${path}`;
}

/** @param {any} data @param {string} pointer The value at a place; undefined if there is none. */
export function readAt(data, pointer) {
  let at = data;
  for (const part of partsOf(pointer)) {
    if (at === null || typeof at !== "object" || !Object.hasOwn(at, part)) return undefined;
    at = at[part];
  }
  return at;
}

/** @param {any} data @param {string} pointer @param {any} value The data with a value at a place, as a copy. */
export function writeAt(data, pointer, value) {
  const parts = partsOf(pointer);
  if (!parts.length) return value;
  const copy = Array.isArray(data) ? [...data] : Object.create(null);
  if (!Array.isArray(data) && data !== null && typeof data === "object") {
    for (const [name, each] of Object.entries(data)) define(copy, name, each);
  }
  const [first, ...rest] = parts;
  if (Array.isArray(copy) && (!/^\d{1,6}$/.test(first) || Number(first) > copy.length)) return copy;
  const below = Object.hasOwn(copy, first) ? copy[first] : undefined;
  const pointed = rest.map((part) => `/${part.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
  define(copy, first, rest.length ? writeAt(below, pointed, value) : value);
  return copy;
}

/** @param {any} target @param {string} name @param {any} value */
function define(target, name, value) {
  Object.defineProperty(target, name, { value, writable: true, enumerable: true, configurable: true });
}

/** @param {any} value */
export function wordsFor(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.slice(0, MAX_TEXT);
}

/** A surface, and what a person has entered in it since its data came. */
export class SurfaceModel {
  constructor() {
    /** @type {Map<string, Component>} */
    this.components = new Map();
    this.root = "";
    this.color = "";
    this.version = "";
    this.sendsData = false;
    /** @type {any} */
    this.data = {};
    /** @type {Map<string, {value: any, base: string}>} By absolute path. */
    this.edits = new Map();
  }

  /** @param {Surface} surface Takes the newest state; an entry stays unless its place has another value now. */
  take(surface) {
    this.components = new Map(Object.entries(surface.components));
    this.root = surface.root;
    this.color = /^#[0-9a-f]{6}$/i.test(surface.color) ? surface.color : "";
    this.version = surface.version;
    this.sendsData = surface.sends_data;
    this.data = surface.data;
    for (const [path, { value, base }] of this.edits) {
      if (JSON.stringify(readAt(surface.data, path) ?? null) === base) this.data = writeAt(this.data, path, value);
      else this.edits.delete(path);
    }
  }

  /** @param {any} bound @param {Scope} scope @param {any} value Writes what a person entered, if it is bound. */
  enter(bound, scope, value) {
    if (bound === null || typeof bound !== "object" || typeof bound.path !== "string") return false;
    const path = absolute(bound.path, scope);
    const base = this.edits.get(path)?.base ?? JSON.stringify(readAt(this.data, path) ?? null);
    this.edits.set(path, { value, base });
    this.data = writeAt(this.data, path, value);
    return true;
  }

  /** @param {any} given @param {Scope} scope @param {number} [calls] @returns {any} What a value is now. */
  value(given, scope, calls = 0) {
    if (given === null || typeof given !== "object" || Array.isArray(given)) return given;
    if (typeof given.path === "string") {
      const found = readAt(this.data, absolute(given.path, scope));
      return found === undefined ? given.default : found;
    }
    if (typeof given.call === "string") {
      return calls < MAX_CALLS ? this.#call(given.call, given.args ?? {}, scope, calls + 1) : undefined;
    }
    return given;
  }

  /** @param {any} given @param {Scope} scope */
  text(given, scope) {
    return wordsFor(this.value(given, scope));
  }

  /**
   * @param {any} children
   * @param {Scope} scope
   * @returns {[string, Scope][]} The components that a list shows, each with where its paths begin.
   */
  childrenOf(children, scope) {
    if (Array.isArray(children)) return children.map((id) => [id, scope]);
    if (!children || typeof children.path !== "string") return [];
    const path = absolute(children.path, scope);
    const items = readAt(this.data, path);
    if (items === null || typeof items !== "object") return [];
    return Object.keys(items).slice(0, MAX_LIST_ITEMS).map((name, index) => {
      const place = name.replaceAll("~", "~0").replaceAll("/", "~1");
      return [children.componentId, { path: `${path}/${place}`, index }];
    });
  }

  /** @param {Component} component @param {Scope} scope @returns {string[]} Messages of the checks that fail. */
  failures(component, scope) {
    const checks = Array.isArray(component.checks) ? component.checks : [];
    return checks.filter(({ condition }) => !this.value(condition, scope)).map(({ message }) => wordsFor(message));
  }

  /** @param {any} event @param {Scope} scope @returns {Record<string, any>} */
  contextOf(event, scope) {
    const context = Object.create(null);
    for (const [name, value] of Object.entries(event.context ?? {})) define(context, name, this.value(value, scope) ?? null);
    return context;
  }

  /** @param {string} name @param {any} args @param {Scope} scope @param {number} calls @returns {any} */
  #call(name, args, scope, calls) {
    const get = (/** @type {string} */ key) =>
      Object.hasOwn(args, key) ? this.value(args[key], scope, calls) : undefined;
    const list = () => (Array.isArray(args.values) ? args.values : []).map((/** @type {any} */ each) =>
      Boolean(this.value(each, scope, calls)));
    const value = get("value");
    switch (name) {
      case "required":
        return value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length);
      case "regex": return matches(wordsFor(value), wordsFor(get("pattern")));
      case "email": return EMAIL.test(wordsFor(value).slice(0, MAX_MATCHED_CHARS));
      case "length": return isWithin(wordsFor(value).length, get("min"), get("max"));
      case "numeric": return value !== "" && isWithin(Number(value), get("min"), get("max"));
      case "and": return list().every(Boolean);
      case "or": return list().some(Boolean);
      case "not": return !value;
      case "@index": return (scope.index ?? 0) + Number(get("offset") ?? 0);
      case "formatString": return this.#format(wordsFor(value), scope);
      case "formatNumber": return formatAmount(Number(value), { maximumFractionDigits: places(get("decimals")) });
      case "formatCurrency": return formatMoney(Number(value), wordsFor(get("currency")));
      case "formatDate": return formatMoment(wordsFor(value), wordsFor(get("format")));
      case "pluralize": return wordsFor(get(Number(value) === 1 ? "one" : "other") ?? get("other"));
      default: return undefined;
    }
  }

  /** @param {string} text @param {Scope} scope A text with the values of `${path}` in it. */
  #format(text, scope) {
    return text.replaceAll(/\\?\$\{([^{}]{0,200})\}/g, (whole, path) =>
      whole.startsWith("\\") ? whole.slice(1) : wordsFor(readAt(this.data, absolute(path.trim(), scope))));
  }
}

/** @param {string} text @param {string} pattern */
function matches(text, pattern) {
  try {
    return new RegExp(pattern, "u").test(text.slice(0, MAX_MATCHED_CHARS));
  } catch {
    return false;
  }
}

/** @param {number} number @param {any} min @param {any} max */
function isWithin(number, min, max) {
  return Number.isFinite(number) && (min === undefined || number >= min) && (max === undefined || number <= max);
}

/** @param {any} decimals */
function places(decimals) {
  return Number.isInteger(decimals) && decimals >= 0 && decimals <= 20 ? decimals : 3;
}

/** @param {number} value @param {Intl.NumberFormatOptions} options */
function formatAmount(value, options) {
  return Number.isFinite(value) ? new Intl.NumberFormat(undefined, options).format(value) : "";
}

/** @param {number} value @param {string} currency */
function formatMoney(value, currency) {
  if (!/^[A-Za-z]{3}$/.test(currency)) return formatAmount(value, {});
  return formatAmount(value, { style: "currency", currency });
}

/** @param {string} text @param {string} format */
function formatMoment(text, format) {
  const moment = new Date(text);
  if (Number.isNaN(moment.getTime())) return text;
  const withTime = /[Hhms]/.test(format) || (!format && text.includes("T"));
  const withDate = !format || /[yMd]/.test(format);
  /** @type {Intl.DateTimeFormatOptions} */
  const options = {};
  if (withDate) options.dateStyle = "medium";
  if (withTime) options.timeStyle = "short";
  return new Intl.DateTimeFormat(undefined, options).format(moment);
}
