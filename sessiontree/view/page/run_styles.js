/** How runs look: the colours, the frame and the panes of a tree, and what only runs have. */

import { makePaneSheet } from "./styles.js";

const RUNS = `
.body-of-runs { min-block-size: 0; min-inline-size: 0; display: grid; }
.run-page { display: grid; grid-template-columns: minmax(0, 1fr); grid-template-rows: auto minmax(0, 1fr);
  min-block-size: 0; min-inline-size: 0; }
.run-head { background: var(--paper); border-block-end: 1px solid var(--line); padding: 12px 16px 10px; }
.big-figures { display: flex; flex-wrap: wrap; gap: 10px 34px; }
.big { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.big dt { font-size: 12px; color: var(--soft); order: 1; overflow: hidden; text-overflow: ellipsis; max-inline-size: 22ch;
  white-space: nowrap; }
.big dd { display: flex; flex-direction: column; }
.value { font-size: 21px; font-weight: 620; line-height: 1.25; letter-spacing: -0.015em; font-variant-numeric: tabular-nums; }
.under { color: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.big.rate .value { color: var(--accent); }
.big.short .value, .short b, .under.short { color: var(--wait); }
.big.faulty .value, .faulty { color: var(--bad); }
.live { color: var(--good); font-weight: 600; }
.big.live .value { color: var(--good); }
.sentence { margin-block: 10px 8px; }
.short-head { padding-block: 7px; }
.short-head .big-figures { gap: 4px 26px; }
.short-head .big, .short-head .big dd { flex-direction: row; align-items: baseline; gap: 8px; }
.short-head .big dt { order: -1; }
.short-head .big { display: flex; }
.short-head .value { font-size: 14px; }
.short-head :is(.sentence, .bar, .about), .short-head :is(.mean, .outcomes) { display: none; }
.bar { display: flex; block-size: 8px; border-radius: 4px; overflow: hidden; background: var(--sunk); gap: 1px; }
.part { flex: 0 1 0; min-inline-size: 3px; background: var(--rail); }
.part[data-outcome=passed] { background: var(--good); }
.part[data-outcome=not-passed] { background: var(--soft); }
.part[data-outcome=infrastructure] { background: var(--bad); }
.part[data-outcome=undecided] { background: var(--wait); }
.part[data-outcome=running] { background: var(--accent); }
.outcomes { display: flex; flex-wrap: wrap; gap: 6px; margin-block-start: 8px; }
.chip { display: inline-flex; gap: 8px; align-items: baseline; border-radius: 13px; padding: 1px 11px; }
.chip b { font-variant-numeric: tabular-nums; font-weight: 650; }
.chip[aria-pressed=true] { background: var(--tint); border-color: var(--accent); }
.outcome { white-space: nowrap; }
.outcome .glyph { inline-size: 16px; display: inline-block; }
[data-outcome=passed] > .glyph, .outcome[data-outcome=passed] { color: var(--good); }
.outcome[data-outcome=infrastructure] { color: var(--bad); }
.outcome[data-outcome=undecided] { color: var(--wait); }
.outcome[data-outcome=running] { color: var(--accent); }
.outcome[data-outcome=waiting] { color: var(--soft); }
.change { white-space: nowrap; }
.change[data-change=better] { color: var(--good); }
.change[data-change=worse] { color: var(--bad); }
.change[data-change=same], .change[data-change=no-answer] { color: var(--soft); }
.kind-of { color: var(--soft); margin-inline-start: 6px; }
.about { margin-block-start: 8px; }
.about > summary { padding-inline: 0; color: var(--soft); inline-size: max-content; }
.about-list { display: grid; gap: 4px; max-block-size: 40vh; overflow: auto; }
.about-list > div { display: grid; grid-template-columns: 150px minmax(0, 1fr); gap: 12px; }
.about-list dt { color: var(--soft); overflow-wrap: anywhere; }
.about-list pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.run-panes { display: grid; grid-template-columns: minmax(0, 1fr); min-block-size: 0; }
.run-panes.reading { grid-template-columns: minmax(320px, 9fr) minmax(0, 11fr); }
.run-panes.reading.widened { grid-template-columns: minmax(0, 1fr); }
.widened .list-pane { display: none; }
.widened .detail { border: 0; }
.list-pane .tools select { max-inline-size: 190px; }
.range { display: inline-flex; gap: 4px; }
.range .bound { inline-size: 80px; }
.grid { flex: 1; overflow: auto; min-block-size: 0; background: var(--ground); overflow-anchor: none; contain: strict;
  scrollbar-gutter: stable; border-block-start: 1px solid var(--line); }
.space { position: relative; contain: layout; }
.lines > .line { position: absolute; inset-inline: 0; inset-block-start: 0; }
.line { display: grid; block-size: 32px; align-items: center; column-gap: 14px; padding-inline: 14px 10px; contain: strict;
  border-block-end: 1px solid var(--line); cursor: default; font-variant-numeric: tabular-nums;
  grid-template-columns: 190px minmax(110px, 5fr) minmax(0, 9fr) minmax(0, 8fr) 92px 64px 76px; }
.pairs .line { grid-template-columns: 118px minmax(110px, 4fr) minmax(120px, 3fr) minmax(120px, 3fr) minmax(0, 7fr); }
.heads { position: sticky; inset-block-start: 0; z-index: 1; }
.line.header { block-size: 28px; background: var(--ground); color: var(--soft); font-size: 12px; contain: none; }
.sort { border: 0; background: none; padding: 0; min-block-size: 24px; color: inherit; font-size: 12px; }
.sort:hover { color: var(--ink); text-decoration: underline; }
[aria-sort=ascending] .sort::after { content: " ▴"; }
[aria-sort=descending] .sort::after { content: " ▾"; }
.cell { min-inline-size: 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.cell.number { text-align: end; }
.lines .line:hover { background: var(--sunk); }
.lines .line.chosen { background: var(--tint); }
.line[aria-selected=true] { box-shadow: inset 3px 0 var(--accent); }
.grid:focus-visible .line[aria-selected=true] { outline: 2px solid var(--accent); outline-offset: -2px; border-radius: 4px; }
.lines .of-sample { font-weight: 550; }
.cell.of-input, .cell.of-time, .cell.of-cost { color: var(--soft); }
.reading:not(.widened) .line { grid-template-columns: 150px minmax(110px, 5fr) minmax(0, 8fr) 70px; }
.reading:not(.widened) .pairs .line { grid-template-columns: 88px minmax(90px, 1fr) 102px 102px; column-gap: 8px; }
.reading .pairs .kind-of { display: none; }
.reading .samples .of-input, .reading .of-time, .reading .of-cost, .reading .pairs .of-input { display: none; }
.pane-head { display: flex; gap: 10px; align-items: flex-start; padding: 10px 16px 2px; }
.pane-head h2:focus { outline: none; }
.pane-buttons { display: flex; gap: 4px; flex: none; }
.pane-buttons button { min-inline-size: 28px; padding-inline: 6px; }
.under-title { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; color: var(--soft); }
.epochs { display: inline-flex; gap: 6px; }
.tag { background: var(--sunk); border-radius: 9px; padding: 0 8px; font-size: 12px; color: var(--ink); overflow-wrap: anywhere; }
.content.of-tree { padding: 0; overflow: hidden; }
.tree-host { block-size: 100%; --session-tree-height: 100%; }
.tree-host session-tree { border: 0; }
.part-of { margin-block: 14px; }
.part-of > h3 { margin-block-end: 5px; }
.part-of .words { max-block-size: 420px; max-inline-size: none; }
.words { font-size: 12.5px; }
.words.bad { background: var(--bad-tint); }
.words.small { max-block-size: 180px; }
.score-list { display: grid; gap: 8px; }
.score { border: 1px solid var(--line); border-inline-start: 3px solid var(--soft); border-radius: 6px; padding: 6px 12px 8px; }
.score[data-outcome=passed] { border-inline-start-color: var(--good); }
.score-head { display: flex; gap: 12px; align-items: baseline; overflow-wrap: anywhere; }
.score-value { font-weight: 650; font-variant-numeric: tabular-nums; }
.labelled { display: grid; grid-template-columns: 66px minmax(0, 1fr); gap: 8px; margin-block-start: 5px; }
.label-of-text { color: var(--soft); font-size: 12px; padding-block: 6px; }
a { color: var(--accent); }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.run-list { overflow: auto; padding: 18px 22px; }
.list-head { display: flex; gap: 16px; align-items: baseline; justify-content: space-between; margin-block: 4px 8px; }
.run-list table { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; border-collapse: separate;
  border-spacing: 0; }
.run-list th, .run-list td { padding: 8px 14px; }
.run-list tbody tr:last-child > * { border-block-end: 0; }
.run-list td b { font-weight: 650; }
td.figure, td.when { white-space: nowrap; }
td.of-run a { font-weight: 600; color: var(--ink); text-decoration: none; }
td.of-run a:hover { color: var(--accent); text-decoration: underline; }
.facts { display: flex; flex-wrap: wrap; gap: 4px; margin-block-start: 3px; }
.matrix td .under { display: block; }
.matrix a { font-weight: 650; }
button:disabled { opacity: 0.6; cursor: default; }
.pair-said { background: var(--paper); border-block-end: 1px solid var(--line); padding: 10px 16px 12px; }
.pair-name { overflow-wrap: anywhere; }
.pair-said .table { margin-block: 6px 0; }
.pair-said .about[open] { max-block-size: 34vh; overflow: auto; }
.sides { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px; }
.side { min-inline-size: 0; }
.side + .side { border-inline-start: 1px solid var(--line); padding-inline-start: 18px; }
.side > h3 { overflow-wrap: anywhere; }
.pair-panes.reading { grid-template-columns: minmax(430px, 7fr) minmax(0, 11fr); }
.run-page:has(.pair-panes.reading) .pair-said .about { display: none; }
.more-filters { display: none; }
.narrow .run-panes.reading { grid-template-columns: minmax(0, 1fr); }
.narrow .run-panes.reading .list-pane { display: none; }
.narrow .detail { border: 0; }
.narrow .run-page { overflow: auto; grid-template-rows: auto minmax(420px, 1fr); }
.narrow .run-page:has(.reading) { grid-template-rows: minmax(0, 1fr); overflow: hidden; }
.narrow .run-page:has(.reading) > .run-head, .narrow .run-page:has(.reading) > .pair-said { display: none; }
.narrow .run-head, .narrow .pair-said { padding: 10px 12px; }
.narrow .big-figures { display: grid; grid-template-columns: repeat(3, minmax(0, auto)); gap: 8px 14px; }
.narrow .big.mean { display: none; }
.narrow .value { font-size: 18px; }
.narrow .back { display: inline-block; flex: none; }
.narrow .close, .narrow .widen { display: none; }
.narrow .pane-head { padding: 8px 12px 2px; flex-wrap: wrap; }
.narrow .content { padding: 12px; }
.narrow .content.of-tree { padding: 0; }
.narrow .keys-button { display: none; }
.narrow .top { padding: 8px 12px; }
.narrow button { min-block-size: 32px; }
.narrow .chip { min-block-size: 28px; }
.narrow .tools select, .narrow .tools .range { flex: 1 1 40%; max-inline-size: none; min-inline-size: 0; }
.narrow .tools .range select { flex: 1; }
.narrow .list-pane .tools .filter { flex: 1 1 150px; }
.narrow .list-pane .more-filters { display: block; }
.narrow .list-pane .tools:not(.open) :is(select, .range) { display: none; }
.narrow .line, .narrow .reading:not(.widened) .line { block-size: 58px; grid-template-columns: minmax(0, 1fr) auto auto;
  grid-template-rows: 25px 21px; row-gap: 0; align-content: center; padding-inline: 12px; }
.narrow .heads { display: none; }
.narrow .line .of-sample { grid-area: 1 / 1; }
.narrow .line .of-score { grid-area: 1 / 2; }
.narrow .line .of-time { grid-area: 1 / 3; display: block; }
.narrow .line .of-outcome { grid-area: 2 / 1 / 3 / 2; font-size: 12px; }
.narrow .samples .of-answer { grid-area: 2 / 2 / 3 / 4; font-size: 12px; color: var(--soft); max-inline-size: 46vw; }
.narrow .of-cost, .narrow .of-input { display: none; }
.narrow .pairs .line { grid-template-columns: minmax(0, 1fr) auto; }
.narrow .pairs .of-change { grid-area: 1 / 2; }
.narrow .pairs .of-before { grid-area: 2 / 1; font-size: 12px; }
.narrow .pairs .of-after { grid-area: 2 / 2; font-size: 12px; }
.narrow .sides { grid-template-columns: minmax(0, 1fr); }
.narrow .side + .side { border-inline-start: 0; padding-inline-start: 0; border-block-start: 1px solid var(--line);
  padding-block-start: 10px; }
.narrow .about-list > div, .narrow .labelled { grid-template-columns: minmax(0, 1fr); gap: 0; }
.narrow .run-list { padding: 12px; }
.narrow .runs, .narrow .runs tbody { display: block; }
.narrow .runs thead { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); }
.narrow .runs tr { display: grid; grid-template-columns: 26px repeat(3, minmax(0, 1fr)); gap: 4px 10px; padding: 10px 12px;
  border-block-end: 1px solid var(--line); }
.narrow .runs tr:last-child { border-block-end: 0; }
.narrow .runs td { border: 0; padding: 0; white-space: normal; }
.narrow .runs td:first-child { grid-area: 1 / 1; min-inline-size: 0; }
.narrow .runs .of-run { grid-area: 1 / 2 / 2 / 5; }
.narrow .runs .when { display: none; }
.narrow .runs td[data-name=cost] { display: none; }
.narrow .runs .figure::before { content: attr(data-name); display: block; font-size: 12px; color: var(--soft); }
.narrow .runs td[data-name="pass rate"] { grid-area: 2 / 2; }
.narrow .runs td[data-name=coverage] { grid-area: 2 / 3; }
.narrow .runs td[data-name="no answer"] { grid-area: 2 / 4; }
.narrow .runs .under { display: block; }
.narrow dl.figures { gap: 4px 14px; }
@media (forced-colors: active) { .line[aria-selected=true] { outline: 2px solid Highlight; outline-offset: -2px; } }
`;

/** Makes the sheet of the element. */
export function makeRunSheet() {
  return makePaneSheet(RUNS);
}
