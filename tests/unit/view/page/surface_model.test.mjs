/** A surface's values, lists, checks and entries; names that look like something else are names. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { partsOf, readAt, SurfaceModel, TOP, writeAt } from "../../../../sessiontree/view/page/surface_model.js";

function surfaceOf(data, components = {}) {
  const model = new SurfaceModel();
  model.take({ version: "v1.0", root: "root", components, data, color: "", sends_data: false });
  return model;
}

test("paths lead to own members alone", () => {
  assert.deepEqual(partsOf("/a~1b/~0/0"), ["a/b", "~", "0"]);
  assert.equal(readAt({ a: [1, { b: 2 }] }, "/a/1/b"), 2);
  for (const path of ["/__proto__", "/constructor", "/toString", "/a/constructor/prototype", "/a/length/x"]) {
    assert.equal(readAt({ a: {} }, path), undefined, path);
  }
});

test("what is written pollutes nothing", () => {
  for (const path of ["/__proto__/bad", "/constructor/prototype/bad", "/a/__proto__/bad"]) {
    const data = writeAt({ a: {} }, path, true);
    assert.equal({}.bad, undefined, path);
    assert.equal(readAt(data, path), true, path);
  }
  const parsed = JSON.parse('{"__proto__": {"bad": 1}}');
  assert.equal(readAt(writeAt(parsed, "/x", 1), "/__proto__/bad"), 1);
  assert.equal({}.bad, undefined);
  assert.deepEqual(writeAt({ a: [1, 2] }, "/a/7", 3).a, [1, 2]);
});

test("values are literals, places and calls", () => {
  const model = surfaceOf({ n: 3, name: "Ada", list: ["x", "y"] });
  assert.equal(model.text({ path: "/name" }, TOP), "Ada");
  assert.equal(model.text({ path: "/none", default: "until then" }, TOP), "until then");
  const call = (name, args) => model.value({ call: name, args }, TOP);
  assert.equal(call("formatString", { value: "${/name} has ${/n}, \\${/n}" }), "Ada has 3, ${/n}");
  assert.equal(call("required", { value: "" }), false);
  assert.equal(call("regex", { value: "abc", pattern: "^a" }), true);
  assert.equal(call("regex", { value: "abc", pattern: "(" }), false);
  assert.equal(call("email", { value: "a@b.c" }), true);
  assert.equal(call("length", { value: "abc", min: 4 }), false);
  assert.equal(call("numeric", { value: 3, min: 1, max: 3 }), true);
  assert.equal(call("and", { values: [true, { call: "not", args: { value: true } }] }), false);
  assert.equal(call("or", { values: [false, true] }), true);
  assert.equal(call("pluralize", { value: 1, one: "piece", other: "pieces" }), "piece");
  assert.equal(call("nothing", {}), undefined);
  let deep = { call: "not", args: { value: true } };
  for (let level = 0; level < 50; level++) deep = { call: "not", args: { value: deep } };
  assert.equal(typeof model.value(deep, TOP), "boolean");
});

test("a list shows a part for each item, with paths of its own", () => {
  const model = surfaceOf({ people: [{ name: "Ada" }, { name: "Grace" }] });
  const parts = model.childrenOf({ componentId: "row", path: "/people" }, TOP);
  assert.deepEqual(parts.map(([id, scope]) => [id, model.text({ path: "name" }, scope)]), [["row", "Ada"], ["row", "Grace"]]);
  assert.equal(model.value({ call: "@index", args: { offset: 1 } }, parts[1][1]), 2);
  assert.deepEqual(model.childrenOf({ componentId: "row", path: "/none" }, TOP), []);
});

test("what a person entered stays until its place changes elsewhere", () => {
  const model = surfaceOf({ name: "", seats: 1 });
  model.enter({ path: "/name" }, TOP, "Mary");
  model.enter({ path: "/seats" }, TOP, 4);
  model.take({ version: "v1.0", root: "root", components: {}, data: { name: "", seats: 2 }, color: "red", sends_data: false });
  assert.equal(model.text({ path: "/name" }, TOP), "Mary");
  assert.equal(model.value({ path: "/seats" }, TOP), 2);
  assert.equal(model.color, "");
  assert.equal(model.enter("literal", TOP, "x"), false);
  assert.deepEqual({ ...model.contextOf({ context: { who: { path: "/name" }, no: { path: "/no" } } }, TOP) }, { who: "Mary", no: null });
});
