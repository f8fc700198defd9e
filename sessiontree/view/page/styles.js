/** How it looks: calm, dense, one accent; a state has a word and a sign, and a colour only beside them. */

import { CANVAS_STYLES } from "./canvas_styles.js";
import { PROGRAM_STYLES } from "./program_styles.js";

const COLOURS = `
:host {
  --ground: #f7f7f4; --paper: #ffffff; --sunk: #f1f1ed; --ink: #1d2024; --soft: #5a616b; --line: #dfdfd9;
  --accent: #2a56c6; --on-accent: #ffffff; --tint: #e8eefc; --good: #1f6b34; --bad: #ae2018;
  --wait: #7f4f00; --good-tint: #e4f3e6; --bad-tint: #fcebe9; --wait-tint: #fbf1dc; --rail: #c9c9c2;
  --model: #4a6fd0; --tool: #68717c; --waiting: #f0d79c; color-scheme: light;
}`;
const DARK = `{
  --ground: #121416; --paper: #191c1f; --sunk: #202428; --ink: #e5e7ea; --soft: #a0a8b2; --line: #31363c;
  --accent: #8fb1ff; --on-accent: #0d1730; --tint: #232d45; --good: #86cf97; --bad: #ff978e;
  --wait: #eabd6e; --good-tint: #1c3023; --bad-tint: #3b2220; --wait-tint: #382d19; --rail: #474d55;
  --model: #8fb1ff; --tool: #a9b1bb; --waiting: #6d5722; color-scheme: dark;
}`;
const FRAME = `
:host { display: block; block-size: var(--session-tree-height, 600px); min-inline-size: 0;
  font: 13px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; color: var(--ink); }
:host([page]) { block-size: 100dvh; }
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
bdi { unicode-bidi: isolate; }
h1, h2, h3, p, dl, dd, figure, pre, fieldset { margin: 0; padding: 0; border: 0; min-inline-size: 0; }
pre, code, kbd, .tool { font: 12px/1.55 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas,
  "DejaVu Sans Mono",
  monospace; }
.unseen { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
.frame { position: relative; display: grid; grid-template-rows: auto minmax(0, 1fr) auto; block-size: 100%;
  background: var(--ground); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
:host([page]) .frame { border: 0; border-radius: 0; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; border-radius: 4px; }
button, select, input, textarea { font: inherit; color: inherit; }
button { border: 1px solid var(--line); background: var(--paper); border-radius: 6px; padding: 2px 10px;
  min-block-size: 26px; cursor: pointer; white-space: nowrap; }
button:hover { border-color: var(--soft); }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent);
  font-weight: 600; }
button.danger { color: var(--bad); border-color: var(--bad); }
button.link { border: 0; background: none; padding: 0; min-block-size: 24px; color: var(--accent);
  text-decoration: underline; text-underline-offset: 2px; text-decoration-thickness: 1px; white-space: normal;
  text-align: start; overflow-wrap: anywhere; }
button.primary:focus-visible, button:focus-visible { outline-offset: 2px; }
input, select, textarea { background: var(--paper); border: 1px solid var(--line); border-radius: 6px;
  padding: 3px 8px;
  min-inline-size: 0; min-block-size: 26px; }
textarea { inline-size: 100%; resize: vertical; }
::placeholder { color: var(--soft); opacity: 1; }
kbd { font-size: 11px; margin-inline-start: 8px; opacity: 0.85; }
.top { display: flex; align-items: center; gap: 10px; padding: 9px 14px; background: var(--paper);
  border-block-end: 1px solid var(--line); }
.home { color: var(--soft); flex: none; text-decoration: none; padding: 4px 10px 4px 0;
  border-inline-end: 1px solid var(--line); }
.home:hover { color: var(--ink); text-decoration: underline; }
.titles { flex: 1; min-inline-size: 0; }
h1 { font-size: 15px; font-weight: 650; line-height: 1.35; letter-spacing: -0.005em; white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis; }
.totals { display: flex; flex-wrap: wrap; column-gap: 14px; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.link-state::before { content: "● "; font-size: 9px; vertical-align: 1px; }
.link-state.reconnecting { color: var(--bad); font-weight: 600; }
.banner { background: var(--wait-tint); color: var(--wait); padding: 4px 14px; font-weight: 600; }
.panes { display: grid; grid-template-columns: minmax(430px, 12fr) minmax(0, 10fr); min-block-size: 0; }
.pane { display: flex; flex-direction: column; min-block-size: 0; min-inline-size: 0; }
.detail { border-inline-start: 1px solid var(--line); background: var(--paper); }
.tools { display: flex; flex-wrap: wrap; gap: 6px; padding: 8px 12px; align-items: center; }
.tools .filter { flex: 1 1 110px; }
.tools select { flex: 0 1 auto; max-inline-size: 130px; }
.count { color: var(--soft); }
.back { display: none; }
.empty { color: var(--soft); padding: 16px; }
.failure, .fault { color: var(--bad); }
.good { color: var(--good); }
.fault:empty, .empty:empty { padding: 0; }
.scrubber { display: flex; align-items: center; gap: 12px; padding: 5px 14px;
  border-block-start: 1px solid var(--line);
  background: var(--paper); color: var(--soft); font-variant-numeric: tabular-nums; }
.scrubber input { flex: 1; accent-color: var(--accent); padding: 0; border: 0; background: none; }
`;
const ROWS = `
.grid { flex: 1; background: var(--ground); overflow: auto; min-block-size: 0; overflow-anchor: none;
  contain: strict; scrollbar-gutter: stable; }
.grid:focus-visible { outline-offset: -2px; }
.space { position: relative; contain: layout; }
.lines > .row { position: absolute; inset-inline: 0; inset-block-start: 0; }
.overlays { display: contents; }
.row { display: grid; block-size: 30px; align-items: center; column-gap: 8px; padding-inline: 8px 4px;
  cursor: default;
  grid-template-columns: minmax(0, 10fr) minmax(0, 9fr) 44px 54px 58px 16px; contain: strict; }
.row.header { position: sticky; inset-block-start: 0; z-index: 1; block-size: 26px; color: var(--soft);
  background: var(--ground); border-block-end: 1px solid var(--line); font-size: 12px; contain: none; }
.lines .row:hover { background: var(--sunk); }
.lines .row.chosen { background: var(--tint); }
.row[aria-selected=true] { box-shadow: inset 3px 0 var(--accent); }
.grid:focus-visible .row[aria-selected=true] { outline: 2px solid var(--accent); outline-offset: -2px;
  border-radius: 4px; }
.row.faint .label { color: var(--soft); font-weight: 400; }
.cell { min-inline-size: 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.session { display: flex; align-items: center; block-size: 100%; }
.header .session { padding-inline-start: 18px; }
.rails { flex: none; align-self: flex-start; }
.rails path { stroke: var(--rail); fill: none; }
.fold { flex: none; inline-size: 18px; text-align: center; color: var(--soft); cursor: pointer;
  align-self: stretch;
  display: grid; place-items: center; }
.name-line { display: flex; flex-wrap: wrap; block-size: 30px; line-height: 30px; overflow: hidden; column-gap: 8px;
  min-inline-size: 0; flex: 1; }
.label { overflow: hidden; text-overflow: ellipsis; font-weight: 550; max-inline-size: 100%; }
.kind { color: var(--soft); font-size: 12px; }
.kind.alike { line-height: 18px; margin-block-start: 6px; block-size: 18px;
  background: var(--sunk); border-radius: 9px; padding-inline: 8px;
  color: var(--ink); }
.state { white-space: nowrap; }
.glyph { display: inline-block; inline-size: 15px; }
.why { color: var(--soft); margin-inline-start: 8px; }
.tokens, .cost, .time { text-align: end; font-variant-numeric: tabular-nums; }
.lines .tokens, .lines .cost, .lines .time { color: var(--soft); }
.menu-button { visibility: hidden; cursor: pointer; padding-inline: 2px; font-weight: 700; }
.row:hover .menu-button, .row[aria-selected=true] .menu-button { visibility: visible; }
[data-state=completed] { color: var(--good); }
[data-state=failed], [data-state=expired] { color: var(--bad); font-weight: 600; }
[data-state=waiting-for-approval], [data-state=waiting-for-an-answer] { color: var(--wait);
  font-weight: 600; }
[data-state=stopping], [data-state=suspended] { color: var(--wait); }
[data-state=active], [data-state=calling], [data-state=waiting-for-model] { color: var(--accent); }
[data-state=cancelled], [data-state=waiting-for-children] { color: var(--soft); }
`;
const DETAIL = `
.tab-line { display: flex; border-block-end: 1px solid var(--line); padding-inline: 8px;
  align-items: center; }
.tabs { display: flex; overflow-x: auto; scrollbar-width: none; min-inline-size: 0; }
.tabs button { border: 0; border-radius: 0; background: none; padding: 9px 10px 7px; color: var(--soft);
  border-block-end: 2px solid transparent; }
.tabs button:hover { color: var(--ink); }
.tabs button[aria-selected=true] { color: var(--ink); font-weight: 600;
  border-block-end-color: var(--accent); }
.content { flex: 1; overflow: auto; padding: 14px 18px; min-block-size: 0; }
.head { padding-block-end: 12px; margin-block-end: 12px; border-block-end: 1px solid var(--line); }
.title-line { display: flex; gap: 12px; align-items: baseline; flex-wrap: wrap; }
h2 { font-size: 16px; font-weight: 650; overflow-wrap: anywhere; }
h3 { font-size: 13px; font-weight: 650; }
.head .why { margin: 2px 0 0; }
dl.figures { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-block-start: 8px;
  font-variant-numeric: tabular-nums; }
dl.figures dt { font-size: 12px; color: var(--soft); }
dl.figures dd { overflow-wrap: anywhere; }
meter { inline-size: 70px; block-size: 10px; }
.turn { color: var(--soft); font-size: 12px; font-weight: 500; padding-block: 12px 4px; }
.item { padding-block: 4px 8px; }
.item > header { display: flex; gap: 8px; align-items: baseline; flex-wrap: wrap; }
.item .name { font-weight: 650; }
.of-thinking .name, .of-notice .name, .of-end .name { color: var(--soft); }
.of-reply { border-inline-start: 2px solid var(--accent); padding-inline-start: 12px; }
.of-message { border-inline-start: 2px solid var(--line); padding-inline-start: 12px; }
.of-thinking .prose, .of-thinking .words { color: var(--soft); }
.item:not(.of-result, .of-failure) > .words { font: inherit; background: none; padding: 0;
  max-inline-size: 72ch; }
.title { min-inline-size: 0; overflow-wrap: anywhere; color: var(--soft); }
span.figures, .figures .link { color: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
span.figures { margin-inline-start: auto; white-space: nowrap; }
.item > header .link { font-size: 12px; }
.prose { max-inline-size: 72ch; line-height: 1.55; overflow-wrap: anywhere; }
.prose > * + * { margin-block-start: 0.6em; }
.prose .heading { font-weight: 650; font-size: 14px; }
.prose a[href] { color: var(--accent); }
.prose ul, .prose ol { margin-block-end: 0; padding-inline-start: 22px; }
.prose blockquote { margin-inline: 0; padding-inline-start: 12px; border-inline-start: 2px solid var(--line);
  color: var(--soft); }
.prose code { background: var(--sunk); border-radius: 3px; padding: 1px 4px; }
.prose pre code { padding: 0; background: none; }
.prose pre, .words, .arguments pre, td pre { white-space: pre-wrap; overflow: auto; overflow-wrap: anywhere;
  max-block-size: 320px; background: var(--sunk); border-radius: 6px; padding: 6px 10px; tab-size: 4; }
.words.whole { max-block-size: 70vh; }
.failed > .words, .failed .result .words { background: var(--bad-tint); }
.arguments { display: grid; grid-template-columns: minmax(0, auto) minmax(0, 1fr); gap: 5px 12px;
  margin-block: 6px; }
.arguments dt { color: var(--soft); padding-block: 6px; overflow-wrap: anywhere; max-inline-size: 14ch; }
.cut { color: var(--wait); font-size: 12px; }
.diff { border: 1px solid var(--line); border-radius: 6px; overflow: auto; max-block-size: 360px;
  margin-block: 6px;
  tab-size: 4; background: var(--paper); }
.diff .line { display: block; padding-inline: 8px; inline-size: max-content; min-inline-size: 100%;
  white-space: pre; }
.diff .sign { display: inline-block; inline-size: 18px; color: var(--soft); user-select: none; }
.diff .added, td .added { background: var(--good-tint); }
.diff .removed, td .removed { background: var(--bad-tint); }
.diff .added .sign { color: var(--good); }
.diff .removed .sign { color: var(--bad); }
.diff .place { color: var(--soft); background: var(--sunk); }
details.call, details.run { border: 1px solid var(--line); border-radius: 6px; margin-block: 4px;
  background: var(--paper); }
details.call.failed { border-color: var(--bad); }
.run > .call { margin-inline: 8px; }
.run[open] { padding-block-end: 4px; }
summary { display: flex; gap: 10px; align-items: baseline; padding: 4px 10px; cursor: pointer;
  min-inline-size: 0;
  list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "▸"; color: var(--soft); inline-size: 10px; flex: none; }
[open] > summary::before { content: "▾"; }
summary .tool { font-weight: 650; flex: none; }
.gist { color: var(--soft); overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  min-inline-size: 0; flex: 1; }
.mark { color: var(--good); white-space: nowrap; }
.failed .mark { color: var(--bad); font-weight: 600; }
.body { display: flex; flex-direction: column; padding: 2px 12px 10px; }
.body > * { min-inline-size: 0; }
.body > .link { order: 9; align-self: flex-end; font-size: 12px; }
.folded > :not(summary) { margin: 2px 12px 10px; }
.folded .name { flex: none; font-weight: 500; color: var(--soft); }
.result { margin-block-start: 6px; }
.result:focus, .item:focus { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
figure { margin-block: 6px; }
img { max-inline-size: 100%; max-block-size: 480px; border: 1px solid var(--line); border-radius: 6px; }
.more { margin-block: 12px; }
.table { overflow: auto; margin-block-end: 18px; }
table { border-collapse: collapse; inline-size: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: start; font-weight: 650; padding-block-end: 6px; overflow-wrap: anywhere; }
th { text-align: start; font-weight: 500; color: var(--soft); font-size: 12px; }
th, td { padding: 4px 14px 4px 0; border-block-end: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word; }
td .link { display: inline; min-block-size: 0; overflow-wrap: break-word; }
td:first-child { min-inline-size: 70px; }
`;
const CARDS = `
.cards { display: grid; grid-template-columns: minmax(0, 1fr); gap: 12px; max-inline-size: 760px; }
.card { border: 1px solid var(--line); border-inline-start: 3px solid var(--wait); border-radius: 8px;
  padding: 10px 14px 12px;
  background: var(--paper); }
.card.question { border-inline-start-color: var(--accent); }
.card:focus-visible { outline-offset: 1px; border-radius: 8px; }
.card[aria-busy] .buttons, form[aria-busy] .buttons { opacity: 0.6; pointer-events: none; }
.card > header { display: flex; align-items: baseline; gap: 10px; }
.card h2 { font-size: 14px; overflow-wrap: anywhere; }
.card.approval h2 { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.badge { background: var(--wait-tint); color: var(--wait); border-radius: 9px; padding: 0 9px;
  font-size: 12px; }
.expires { margin-inline-start: auto; color: var(--soft); font-size: 12px;
  font-variant-numeric: tabular-nums; }
.asked, .note { color: var(--soft); overflow-wrap: anywhere; }
.label-of { color: var(--ink); font-weight: 550; }
.note { font-size: 12px; margin-block-start: 6px; }
.note bdi { color: var(--ink); }
.reason { inline-size: 100%; margin-block-start: 8px; }
.buttons { display: flex; gap: 8px; margin-block-start: 10px; flex-wrap: wrap; }
fieldset { margin-block-start: 8px; }
legend { font-weight: 600; padding: 0; overflow-wrap: anywhere; }
.option { display: flex; gap: 8px; padding-block: 3px; align-items: baseline; cursor: pointer; }
.option input { accent-color: var(--accent); min-block-size: 0; flex: none; }
.hint { display: block; color: var(--soft); font-size: 12px; }
fieldset textarea { margin-block-start: 6px; }
.menu { position: absolute; z-index: 3; min-inline-size: 210px; background: var(--paper);
  border: 1px solid var(--line);
  border-radius: 8px; padding: 4px; box-shadow: 0 8px 28px rgb(0 0 0 / 22%); }
.menu button { display: flex; justify-content: space-between; inline-size: 100%; border: 0;
  background: none; padding: 5px 10px; }
.menu button:hover, .menu button:focus { background: var(--tint); }
dialog { border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; background: var(--paper);
  color: var(--ink);
  inline-size: min(520px, calc(100% - 24px)); max-block-size: 85%; box-shadow: 0 16px 48px rgb(0 0 0 / 30%); }
dialog::backdrop { background: rgb(0 0 0 / 40%); }
dialog h2 { margin-block-end: 8px; }
dialog p { margin-block-end: 8px; }
dialog input { inline-size: 100%; }
.keys { display: grid; grid-template-columns: auto 1fr; gap: 5px 16px; }
.keys kbd { margin: 0; background: var(--sunk); border-radius: 4px; padding: 2px 7px; }
.timeline .tools { padding: 0 0 8px; }
.legend { display: flex; gap: 14px; flex: 1; color: var(--soft); }
.legend span::before { content: ""; display: inline-block; inline-size: 12px; block-size: 10px;
  border-radius: 2px;
  margin-inline-end: 6px; background: var(--tool); }
.legend .of-model::before { background: var(--model); }
.legend .of-waiting::before { background: var(--waiting); }
.told { color: var(--soft); min-block-size: 20px; font-variant-numeric: tabular-nums; }
.lanes { display: grid; grid-template-columns: minmax(60px, 150px) minmax(0, 1fr); }
.names, .track { display: flex; flex-direction: column; min-inline-size: 0; }
.track { overflow-x: auto; }
.lane-name { block-size: 26px; min-block-size: 26px; flex: none; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap;
  padding-inline-end: 8px; text-decoration: none; color: var(--ink);
  border-block-start: 1px solid var(--line); }
button.link.lane-name { white-space: nowrap; color: var(--ink); text-decoration: none; }
.lane, .axis { display: block; flex: none; border-block-start: 1px solid var(--line); }
.axis text { fill: var(--soft); font-size: 11px; }
.axis line { stroke: var(--soft); }
.span.of-model { fill: var(--model); }
.span.of-tool { fill: var(--tool); }
.span.of-waiting { fill: var(--waiting); }
.lane text { font-size: 11px; pointer-events: none; fill: var(--paper); }
.lane text.of-waiting { fill: var(--ink); }
`;
const NARROW = `
.narrow .panes { grid-template-columns: minmax(0, 1fr); }
.narrow .detail, .narrow.reading .rows { display: none; }
.narrow.reading .detail { display: flex; border: 0; }
.narrow .back { display: inline-block; flex: none; margin-inline-end: 6px; }
.narrow .row { block-size: 50px; grid-template-columns: minmax(0, 1fr) auto auto 26px;
  grid-template-rows: 25px 21px;
  row-gap: 0; align-content: center; }
.narrow .row.header { display: none; }
.narrow .session { grid-area: 1 / 1 / 3 / 2; align-items: flex-start; block-size: 50px; }
.narrow .name-line, .narrow .session .fold { line-height: 28px; block-size: 28px; }
.narrow .fold { align-self: flex-start; block-size: 30px; }
.narrow .state-cell { grid-area: 2 / 1 / 3 / 5; padding-inline-start: calc(18px + var(--indent, 0px));
  font-size: 12px; }
.narrow .tokens { grid-area: 1 / 2; }
.narrow .cost { grid-area: 1 / 3; }
.narrow .time { display: none; }
.narrow .actions { grid-area: 1 / 4; }
.narrow .menu-button { visibility: visible; }
.narrow .top { padding: 8px 12px; flex-wrap: wrap; }
.narrow .keys-button { display: none; }
.narrow h1 { white-space: normal; display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; }
.narrow .inbox { inline-size: 100%; min-block-size: 36px; }
.narrow.reading .top { padding: 0; border: 0; }
.narrow.reading .home, .narrow.reading .totals, .narrow.reading .inbox { display: none; }
.narrow.reading h1 { position: absolute; inline-size: 1px; block-size: 1px; clip-path: inset(50%); }
.narrow .content { padding: 12px; }
.narrow button { min-block-size: 32px; }
.narrow .arguments { grid-template-columns: minmax(0, 1fr); gap: 2px; }
.narrow .arguments dt { padding-block: 4px 0; max-inline-size: none; }
.narrow .lanes { grid-template-columns: 92px minmax(0, 1fr); }
.narrow button.lane-name { min-block-size: 26px; }
.narrow .card .buttons button { flex: 1; min-block-size: 38px; }
.narrow kbd { display: none; }
@media (prefers-reduced-motion: no-preference) {
  [data-state=calling] .glyph,
  [data-state=waiting-for-model] .glyph { animation: breathe 2.4s ease-in-out infinite; }
  @keyframes breathe { 50% { opacity: 0.35; } }
}
@media (forced-colors: active) { .row[aria-selected=true] { outline: 2px solid Highlight;
  outline-offset: -2px; } }
`;

/** Makes the sheet of the element. */
export function makeSheet() {
  return makeSheetOf(ROWS + DETAIL + CARDS + NARROW + CANVAS_STYLES + PROGRAM_STYLES);
}

/** @param {string} own Makes the sheet of an element in the same colours and frame, with the parts of a pane. */
export function makePaneSheet(own) {
  return makeSheetOf(DETAIL + CARDS + own);
}

/** @param {string} parts */
function makeSheetOf(parts) {
  const sheet = new CSSStyleSheet();
  const dark = `@media (prefers-color-scheme: dark) { :host(:not([theme=light])) ${DARK} } :host([theme=dark]) ${DARK}`;
  sheet.replaceSync(COLOURS + dark + FRAME + parts);
  return sheet;
}

const LIST = `
html { background: var(--ground); }
body { font: 13px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; color: var(--ink); }
header { background: var(--paper); border-block-end: 1px solid var(--line); padding: 9px 16px; }
h1 { font-size: 15px; font-weight: 650; margin: 0; line-height: 1.35; }
header p, .id, .empty { color: var(--soft); margin: 0; }
.list { max-inline-size: 1060px; margin: 20px auto; padding-inline: 16px; }
.empty { padding: 16px 0; }
table { border-collapse: separate; border-spacing: 0; inline-size: 100%; background: var(--paper);
  border: 1px solid var(--line); border-radius: 8px; font-variant-numeric: tabular-nums; overflow: hidden; }
th { text-align: start; font-weight: 500; color: var(--soft); font-size: 12px; background: var(--ground); }
th, td { padding: 8px 14px; vertical-align: top; overflow-wrap: anywhere; }
tr + tr td, tbody tr:first-child td { border-block-start: 1px solid var(--line); }
tbody tr:hover { background: var(--sunk); }
td.state, td.when { white-space: nowrap; }
td.when, td.number { color: var(--soft); }
.state.live { color: var(--good); font-weight: 600; }
.state.stored { color: var(--soft); }
.number { text-align: end; }
.id { display: block; font: 12px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
a { color: var(--ink); font-weight: 600; text-decoration: none; }
a:hover { color: var(--accent); text-decoration: underline; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
.fault { color: var(--bad); }
@media (max-width: 620px) {
  th:nth-child(4), td:nth-child(4), th:nth-child(5), td:nth-child(5) { display: none; }
  th, td { padding-inline: 10px; }
}
`;

/** Makes the sheet of the list of trees. */
export function makeListSheet() {
  const sheet = new CSSStyleSheet();
  const dark = `@media (prefers-color-scheme: dark) { :root ${DARK} }`;
  sheet.replaceSync(COLOURS.replace(":host", ":root") + dark + LIST);
  return sheet;
}

/** Makes the sheet of a page that is the tree and nothing else. */
export function makePageSheet() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("html, body { margin: 0; padding: 0; } @page { margin: 12mm; }");
  return sheet;
}
