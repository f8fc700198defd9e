/** How a program looks in the transcript. */

export const PROGRAM_STYLES = `
.program .code { position: relative; overflow: auto; max-block-size: 320px; background: var(--sunk); border-radius: 6px;
  padding: 6px 10px; tab-size: 4; counter-reset: line; margin-block: 4px 8px; }
.program .code .line { counter-increment: line; display: block; inline-size: max-content; min-inline-size: 100%; }
.program .code .line::before { content: counter(line); display: inline-block; inline-size: 3ch; text-align: end;
  margin-inline-end: 12px; color: var(--soft); }
.program .code .waits { background: var(--wait-tint); }
.program .waits .wait-mark { display: inline-block; position: sticky; inset-inline-end: -10px; padding-inline: 1ch;
  background: var(--wait-tint); color: var(--wait); font-weight: 600; }
.program .steps a { color: var(--accent); }
.program h4 { font-size: 12px; font-weight: 600; color: var(--soft); margin: 8px 0 2px; }
.program ol.steps, .program ul.notes, .program ol.phases { list-style: none; margin: 0; padding: 0; }
.program .steps li { display: flex; gap: 8px; align-items: baseline; min-inline-size: 0; padding-block: 1px; }
.program .steps li[data-state] { color: inherit; font-weight: 400; }
.program .steps .sign { flex: none; inline-size: 14px; text-align: center; }
.program .steps .state-word, .program .steps .figures, .program .steps a { flex: none; white-space: nowrap; }
.program .steps .gist { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; min-inline-size: 0;
  color: var(--soft); }
.program li[data-state=done] .sign { color: var(--good); }
.program li[data-state=failed] .sign, .program li[data-state=lost] .sign, .program .wrong { color: var(--bad); }
.program li[data-state=approval] .sign, .program li[data-state=answer] .sign,
.program li[data-state=approval] .state-word, .program li[data-state=answer] .state-word {
  color: var(--wait); font-weight: 600; }
.program .phases { display: flex; flex-wrap: wrap; gap: 2px 6px; }
.program .phases li { background: var(--sunk); border-radius: 9px; padding-inline: 8px; color: var(--soft); }
.program .phases [aria-current] { background: var(--tint); color: var(--ink); font-weight: 600; }
.program .fan-outs { border-collapse: collapse; margin-block: 8px; font-variant-numeric: tabular-nums; }
.program .fan-outs th, .program .fan-outs td { padding: 2px 10px 2px 0; text-align: end; font-weight: 400; }
.program .fan-outs th:first-child { text-align: start; }
.program .fan-outs thead th { color: var(--soft); font-size: 12px; }
.program .fan-outs .none { color: var(--soft); }
.program .notes li { overflow-wrap: anywhere; color: var(--soft); }
`;
