import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { FrozenSource } from "../../../../sessiontree/view/page/source_frozen.js";
import { HttpSource } from "../../../../sessiontree/view/page/source_http.js";
import { WidgetSource } from "../../../../sessiontree/view/page/source_widget.js";
import { makeDelta, makeRow, makeSnapshot } from "./sample_tree.mjs";

const kept = { fetch: globalThis.fetch, EventSource: globalThis.EventSource, setTimeout: globalThis.setTimeout };
afterEach(() => Object.assign(globalThis, kept));

test("a saved tree gives pages, hits and spans of what it has, and says what it has not", async () => {
  const items = [1, 2, 3, 4, 5].map((seq) => ({ seq, title: "", text: `word ${seq}` }));
  const snapshot = makeSnapshot([makeRow(0, null, { path: "__proto__" })]);
  const spans = [[0, 1, 2, "model", "", ""]];
  const transcripts = JSON.parse(`{"__proto__": ${JSON.stringify(items)}}`);
  const source = new FrozenSource({ snapshot, transcripts, spans });
  assert.equal(await source.open(() => {}), snapshot);
  const page = await source.ask("transcript", { session: "__proto__", after: 1, most: 2 });
  assert.deepEqual([page.items.map((each) => each.seq), page.next], [[2, 3], 3]);
  assert.equal((await source.ask("transcript", { session: "__proto__", after: 3, most: 2 })).next, null);
  assert.deepEqual((await source.ask("find", { text: "WORD 4" })).hits, [[0, 4, "\nword 4"]]);
  assert.deepEqual((await source.ask("timeline", { sessions: ["__proto__"] })).spans, spans);
  await assert.rejects(source.ask("transcript", { session: "constructor" }), /not in the saved page/);
  await assert.rejects(source.ask("approve", { id: "r1" }), /not in the saved page/);
  assert.deepEqual([...source.reads].sort(), ["find", "snapshot", "timeline", "transcript"]);
});

test("a widget's answers go to who asked, errors and news with them", async () => {
  const sent = [];
  let tell = (_message) => {};
  const source = new WidgetSource({ send: (message) => sent.push(message), onMessage: (hear) => void (tell = hear) });
  const news = [];
  const opened = source.open((each) => news.push(each));
  tell({ id: sent[0].id, value: makeSnapshot([]) });
  assert.equal((await opened).feed, "f");
  const [first, second] = [source.ask("receipt", {}), source.ask("deny", { id: "r1", reason: "" })];
  tell({ id: sent[2].id, error: "it was decided" });
  tell({ id: sent[1].id, value: { lines: [] } });
  tell({ id: 99, value: 1 });
  tell({ news: makeDelta(1, []) });
  assert.deepEqual(await first, { lines: [] });
  await assert.rejects(second, /it was decided/);
  assert.deepEqual(sent[2], { id: 3, ask: "deny", given: { id: "r1", reason: "" } });
  assert.equal(news[0].kind, "delta");
  const last = source.ask("receipt", {});
  source.close();
  await assert.rejects(last, /closed/);
});

test("a lost connection is said, and resumes at the revision that was reached", async () => {
  const made = [];
  globalThis.EventSource = class {
    constructor(url) {
      this.url = url;
      made.push(this);
    }
    addEventListener(name, act) {
      this[name] = act;
    }
    close() {
      this.isClosed = true;
    }
  };
  globalThis.fetch = async () => new Response(JSON.stringify(makeSnapshot([], { feed: "f&x", revision: 7 })));
  const source = new HttpSource("/t/one");
  const news = [];
  await source.open((each) => news.push(each));
  assert.equal(made[0].url, "/t/one/feed?revision=7&feed=f%26x");
  made[0].onmessage({ data: JSON.stringify(makeDelta(7, [], { feed: "f&x" })) });
  globalThis.setTimeout = (act) => void act();
  made[0].onerror();
  assert.equal(made[0].isClosed, true);
  await new Promise(setImmediate);
  assert.equal(made[1].url, "/t/one/feed?revision=8&feed=f%26x");
  made[1].onopen();
  assert.deepEqual(news.map((each) => each.status ?? each.kind), ["delta", "reconnecting", "connected"]);
  made[1].farewell();
  assert.equal(made[1].isClosed, true);
  globalThis.fetch = async () => new Response("", { status: 401 });
  made[1].onerror();
  await new Promise(setImmediate);
  assert.equal(made.length, 2);
  assert.deepEqual(news.slice(3).map((each) => each.status), ["closed", "reconnecting", "refused"]);
  source.close();
});

test("what a server refuses becomes its words", async () => {
  const source = new HttpSource("/t/one");
  globalThis.fetch = async () => new Response(JSON.stringify({ error: "no such request" }), { status: 409 });
  await assert.rejects(source.ask("approve", { id: "r" }), /no such request/);
  globalThis.fetch = async () => new Response("<html>", { status: 502 });
  await assert.rejects(source.ask("receipt", {}), /answered 502/);
});
