/** Rules of the modules: nothing becomes markup but in one place, and they can be joined into one. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const PAGE = new URL("../../../../sessiontree/view/page/", import.meta.url);
const NAMES = readdirSync(PAGE).filter((name) => name.endsWith(".js"));
const MODULES = NAMES.map((name) => [name, readFileSync(new URL(name, PAGE), "utf8")]);

const DANGERS = [
  /\b(?:inner|outer)HTML\b/, /\binsertAdjacentHTML\b/, /\bdocument\.write/, /\beval\b/, /\bnew Function\b/,
  /\bsetHTMLUnsafe\b|\bparseHTMLUnsafe\b|\bparseFromString\b|\bcreateContextualFragment\b/, /\bsrcdoc\b/,
  /\bsetAttribute\(\s*["'`](?:on|style|href|src|xlink)/, /\bcssText\b/, /\.style\.(?!setProperty\()/, /\.style\s*=/,
  /\bjavascript:/, /\bimport\(/, /\bimportScripts\b/, /\b(?:set(?:Timeout|Interval))\(\s*["'`]/, /\bwindow\.open\b/,
  /\blocation\.(?:href|assign|replace)\b(?!\()/, /\blocalStorage\b|\bsessionStorage\b|\bdocument\.cookie\b/,
  /\.(?:href|src)\s*=/, /\bcreateElement\(\s*["'`](?:script|style|link|iframe|object|embed|form)/, /https?:\/\/(?!www\.w3\.org)/,
];
const ALLOWED = new Map([
  ["elements.js", ["template.innerHTML = FragmentPolicy.get().createHTML(html);", "copy.href = target;",
    "link.href = `/t/${encodeURIComponent(id)}`;", 'link.href = "/";',
    "link.href = `#${placeOf(parts)}`;", "image.src = `data:${mime};base64,${base64}`;"]],
  ["canvas.js", ["frame.src = address;"]],
  ["canvas_bridge.js", ["const value = await (0, eval)(code);", 'if (kind === "eval")']],
  ["canvas_document.js", ["return copy.outerHTML;", 'const style = document.createElement("style");',
    "(rule) => rule.cssText", "image.src = drawn(element);"]],
  ["surface_view.js", ["image.src = url;"]],
  ["source_folder.js", ['const script = document.createElement("script");',
    "script.src = this.policy.createScriptURL(name);"]],
]);

function withoutComments(text) {
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/(^|\s)\/\/ .*$/gm, "$1");
}

for (const [name, text] of MODULES) {
  test(`${name} makes markup of no text`, () => {
    let code = withoutComments(text);
    for (const line of ALLOWED.get(name) ?? []) {
      assert.equal(code.split(line).length, 2, `${line} is there once`);
      code = code.replace(line, "");
    }
    for (const danger of DANGERS) assert.doesNotMatch(code, danger);
  });

  test(`${name} can be joined with the others`, () => {
    const code = withoutComments(text);
    for (const line of code.split("\n").filter((each) => /\bimport\b/.test(each) && !/["'`].*import/.test(each))) {
      assert.match(line, /^import \{ [\w, ]+ \} from "\.\/[a-z_]+\.js";$/);
      const target = line.split('"./')[1].slice(0, -2);
      assert.ok(NAMES.includes(target), line);
    }
    for (const line of code.split("\n").filter((each) => /^export\b/.test(each))) {
      assert.match(line, /^export (?:async )?(?:function|class|const) \w/);
    }
    assert.doesNotMatch(code, /^(?:let|var) /m, "no state at the level of a module");
    assert.ok(text.split("\n").length <= 400, "a module has at most 400 lines");
    for (const line of text.split("\n")) assert.ok(line.length <= 130, line);
  });
}

test("what a module takes from another is given by that one", () => {
  const given = new Map(MODULES.map(([name, text]) => [
    name, new Set([...text.matchAll(/^export (?:async )?(?:function|class|const) (\w+)/gm)].map((found) => found[1])),
  ]));
  for (const [name, text] of MODULES) {
    for (const [, names, from] of text.matchAll(/^import \{ ([\w, ]+) \} from "\.\/([a-z_]+\.js)";$/gm)) {
      for (const each of names.split(", ")) assert.ok(given.get(from).has(each), `${name}: ${each} of ${from}`);
    }
  }
});

test("names at the top of the modules are unique over all of them", () => {
  const seen = new Map();
  for (const [name, text] of MODULES) {
    for (const [, top] of text.matchAll(/^(?:export )?(?:async )?(?:function|class|const) (\w+)/gm)) {
      assert.equal(seen.get(top), undefined, `${top} is in ${name} and ${seen.get(top)}`);
      seen.set(top, name);
    }
  }
});

test("the page has no script and no style of its own", () => {
  const page = readFileSync(new URL("index.html", PAGE), "utf8");
  assert.equal(page.match(/<script/g).length, 1);
  assert.match(page, /<script type="module" src="\/assets\/main\.js"><\/script>/);
  assert.doesNotMatch(page, /<style|style=|\son\w+=|https?:/);
});
