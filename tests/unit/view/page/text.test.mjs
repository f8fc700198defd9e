import assert from "node:assert/strict";
import { test } from "node:test";

import * as text from "../../../../sessiontree/view/page/text.js";

const CASES = [
  ["formatCount", [0, "0"], [999, "999"], [1000, "1\u2009000"], [1234567, "1\u2009234\u2009567"]],
  ["formatTokens", [940, "940"], [12_345, "12.3k"], [123_456, "123k"], [999_960, "1.0M"], [4_560_000, "4.6M"]],
  ["formatCost", [null, "–"], [0, "$0"], [0.00001, "<$0.0001"], [0.0171, "$0.0171"], [1.5, "$1.50"], [12345, "$12\u2009345"]],
  ["formatDuration", [-5, "0 s"], [250, "250 ms"], [1500, "1.5 s"], [59_400, "59 s"], [59_600, "1 min 0 s"],
    [3_599_600, "1 h 0 min"], [90_000_000, "1 d 1 h"]],
  ["formatBrief", [400, "0 s"], [59_000, "59 s"], [61_000, "1:01"], [3_725_000, "1:02:05"], [864_000_000, "10 d"]],
  ["formatShare", [0, "0\u2009%"], [0.004, "<1\u2009%"], [0.5, "50\u2009%"], [2, "100\u2009%"]],
  ["glyphOf", ["failed", "✕"], ["constructor", "·"]],
  ["firstLine", ["a\nb", "a"], ["x".repeat(200), `${"x".repeat(120)}…`], ["  \n b", "b"]],
];

for (const [name, ...pairs] of CASES) {
  test(name, () => {
    for (const [given, words] of pairs) assert.equal(text[name](given), words, `of ${given}`);
  });
}

test("no half letter is left by a cut", () => {
  const cut = text.firstLine("😀".repeat(300), 50);
  assert.equal(cut, `${"😀".repeat(50)}…`);
});

test("a count and its noun agree", () => {
  assert.equal(text.formatNumber(1, "match", "matches"), "1 match");
  assert.equal(text.formatNumber(0, "session"), "0 sessions");
});
