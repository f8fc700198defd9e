/** The inputs of A2UI surfaces: fields, boxes, choices, sliders and dates, and what a person entered in them. */

/** @import { Component, Scope, SurfaceModel } from "./surface_model.js" */

const FIELDS = new Map([["number", "number"], ["obscured", "password"], ["date", "date"]]);
const MAX_ENTRY = 5_000;

/**
 * @param {string} tag
 * @param {string} name Its class.
 * @param {...(Node|string)} children
 * @returns {any}
 */
export function build(tag, name = "", ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}

/**
 * @param {SurfaceModel} model
 * @param {Component} component
 * @param {Scope} scope
 * @param {string} key
 * @param {string[]} failures Messages of the checks that fail.
 * @returns {HTMLElement}
 */
export function makeInput(model, component, scope, key, failures) {
  const label = model.text(component.label, scope);
  const element = makeControl(model, component, scope, key, label);
  for (const words of failures) {
    const fault = build("p", "fault", words);
    fault.setAttribute("role", "alert");
    element.append(fault);
  }
  return element;
}

/**
 * @param {SurfaceModel} model
 * @param {Component} component
 * @param {Scope} scope
 * @param {string} key
 * @param {string} label
 * @returns {HTMLElement}
 */
function makeControl(model, component, scope, key, label) {
  const value = model.value(component.value, scope);
  if (component.component === "ChoicePicker") return makeChoice(model, component, scope, key, label);
  if (component.component === "CheckBox") {
    const box = makeEntry("checkbox", key);
    box.checked = value === true;
    return build("label", "box", box, build("span", "", label));
  }
  if (component.component === "Slider") return makeSlider(component, key, label, Number(value));
  if (component.component === "DateTimeInput") {
    const field = makeEntry(dateType(component), key);
    field.value = model.text(component.value, scope).slice(0, 16);
    field.min = model.text(component.min, scope);
    field.max = model.text(component.max, scope);
    return build("label", "field", build("span", "label", label), field);
  }
  const isLong = component.variant === "longText";
  const field = isLong ? build("textarea") : makeEntry(FIELDS.get(component.variant ?? "") ?? "text", key);
  field.dataset.key = key;
  field.maxLength = MAX_ENTRY;
  field.autocomplete = "off";
  field.dir = "auto";
  field.value = model.text(component.value, scope);
  if (component.placeholder !== undefined) field.placeholder = model.text(component.placeholder, scope);
  return build("label", "field", build("span", "label", label), field);
}

/** @param {string} type @param {string} key @returns {HTMLInputElement} */
function makeEntry(type, key) {
  const field = build("input");
  field.type = type;
  field.dataset.key = key;
  return field;
}

/** @param {Component} component */
function dateType(component) {
  if (component.enableDate && component.enableTime) return "datetime-local";
  return component.enableTime ? "time" : "date";
}

/** @param {Component} component @param {string} key @param {string} label @param {number} value */
function makeSlider(component, key, label, value) {
  const slider = makeEntry("range", key);
  const min = component.min ?? 0, span = component.max - min;
  slider.min = String(min);
  slider.max = String(component.max);
  slider.step = component.steps >= 1 ? String(span / component.steps) : "any";
  slider.value = String(Number.isFinite(value) ? value : min);
  if (!label) slider.setAttribute("aria-label", component.id);
  const shown = build("output", "", String(Math.round(Number(slider.value) * 100) / 100));
  return build("label", "field", build("span", "label", label, " ", shown), slider);
}

/** @param {SurfaceModel} model @param {Component} component @param {Scope} scope @param {string} key @param {string} label */
function makeChoice(model, component, scope, key, label) {
  const chosen = chosenOf(model.value(component.value, scope));
  const isMany = component.variant === "multipleSelection";
  const list = build("fieldset", `choice ${component.displayStyle === "chips" ? "chips" : ""}`);
  if (label) list.append(build("legend", "", label));
  component.options.forEach((/** @type {any} */ option, /** @type {number} */ number) => {
    const box = makeEntry(isMany ? "checkbox" : "radio", `${key} ${number}`);
    box.name = key;
    box.value = option.value;
    box.checked = chosen.includes(option.value);
    list.append(build("label", "box", box, build("span", "", model.text(option.label, scope))));
  });
  return list;
}

/** @param {any} value @returns {string[]} */
function chosenOf(value) {
  if (Array.isArray(value)) return value.map(String);
  return typeof value === "string" ? [value] : [];
}

/** @param {Component} component @param {HTMLElement} element @returns {any} What a person entered. */
export function readInput(component, element) {
  const fields = /** @type {HTMLInputElement[]} */ ([...element.querySelectorAll("input, textarea")]);
  if (component.component === "ChoicePicker") return fields.filter((each) => each.checked).map((each) => each.value);
  const [field] = fields;
  if (component.component === "CheckBox") return field.checked;
  if (component.component === "Slider") return Number(field.value);
  if (component.variant === "number") return field.value === "" ? "" : Number(field.value);
  return field.value;
}
