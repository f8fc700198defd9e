/** The frame that shows a canvas's A2UI surfaces: it takes them from the page around it, and sends actions there. */

import { SurfaceModel } from "./surface_model.js";
import { SurfacesView } from "./surface_view.js";
import { openBridge, sayAbove } from "./canvas_bridge.js";

const SHEET = `
:root { color-scheme: light dark; --ground: #f7f7f4; --paper: #ffffff; --ink: #1d2024; --soft: #5a616b; --line: #d4d4cd;
  --accent: #2a56c6; --on-accent: #ffffff; --bad: #ae2018; --sunk: #f1f1ed; }
@media (prefers-color-scheme: dark) { :root { --ground: #121416; --paper: #191c1f; --ink: #e5e7ea; --soft: #a0a8b2;
  --line: #3a4047; --accent: #8fb1ff; --on-accent: #0d1730; --bad: #ff978e; --sunk: #202428; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 16px; background: var(--ground); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: anywhere; }
.surface + .surface { margin-block-start: 20px; padding-block-start: 20px; border-block-start: 1px solid var(--line); }
h1, h2, h3, h4, h5, p, hr, fieldset { margin: 0; padding: 0; border: 0; }
h1 { font-size: 22px; line-height: 1.25; } h2 { font-size: 18px; line-height: 1.3; } h3 { font-size: 16px; }
h4, h5 { font-size: 14px; }
.caption, .empty, .label, legend { color: var(--soft); font-size: 12px; }
.text { min-inline-size: 0; }
.down { display: flex; flex-direction: column; gap: 12px; align-items: stretch; min-inline-size: 0; flex: 0 1 auto; }
.across { display: flex; flex-wrap: wrap; gap: 12px; align-items: center; min-inline-size: 0; }
.list.across { flex-wrap: nowrap; overflow-x: auto; padding-block-end: 4px; }
.list.across > * { flex: none; max-inline-size: 85%; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px;
  min-inline-size: 0; }
hr { border-block-start: 1px solid var(--line); align-self: stretch; }
hr.vertical { border: 0; border-inline-start: 1px solid var(--line); }
button { font: inherit; color: inherit; border: 1px solid var(--line); background: var(--paper); border-radius: 8px;
  padding: 6px 14px; min-block-size: 34px; cursor: pointer; }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); font-weight: 600; }
button.borderless { border-color: transparent; background: none; color: var(--accent); }
button:disabled { opacity: 0.55; cursor: not-allowed; }
button:hover:enabled { border-color: var(--soft); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
.column > button { align-self: flex-start; }
.field { display: flex; flex-direction: column; gap: 4px; min-inline-size: 0; flex: 1 1 180px; }
.down > .field { flex: none; }
input, textarea { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line);
  border-radius: 8px; padding: 6px 10px; min-block-size: 34px; min-inline-size: 0; accent-color: var(--accent); }
textarea { min-block-size: 80px; resize: vertical; }
input[type=range] { padding: 0; border: 0; background: none; min-block-size: 24px; }
.box { display: flex; gap: 8px; align-items: center; cursor: pointer; }
.box input { min-block-size: 0; flex: none; inline-size: 16px; block-size: 16px; margin: 0; }
legend { padding: 0; margin-block-end: 6px; }
.choice { display: flex; flex-direction: column; gap: 6px; }
.chips { flex-direction: row; flex-wrap: wrap; }
.chips legend { inline-size: 100%; margin-block-end: 6px; }
.chips .box { border: 1px solid var(--line); border-radius: 16px; padding: 3px 12px; background: var(--paper); }
.fault { color: var(--bad); font-size: 12px; }
.tabs { display: flex; gap: 4px; border-block-end: 1px solid var(--line); margin-block-end: 12px; overflow-x: auto; }
.tabs button { border: 0; border-radius: 0; background: none; color: var(--soft);
  border-block-end: 2px solid transparent; white-space: nowrap; }
.tabs button[aria-selected=true] { color: var(--ink); font-weight: 600; border-block-end-color: var(--accent); }
dialog { border: 1px solid var(--line); border-radius: 12px; background: var(--paper); color: var(--ink);
  padding: 18px 20px; max-inline-size: min(520px, calc(100vw - 32px)); }
dialog::backdrop { background: rgb(0 0 0 / 40%); }
.close { float: inline-end; border: 0; background: none; padding: 2px 6px; min-block-size: 28px; }
img { max-inline-size: 100%; border-radius: 8px; display: block; }
img.icon { inline-size: 24px; block-size: 24px; } img.avatar { inline-size: 44px; block-size: 44px; border-radius: 50%; }
img.smallFeature { max-inline-size: 120px; } img.mediumFeature { max-inline-size: 320px; }
img.header { inline-size: 100%; max-block-size: 220px; object-fit: cover; }
.icon { flex: none; }
.missing { border: 1px dashed var(--line); border-radius: 8px; padding: 8px 12px; color: var(--soft); font-size: 12px;
  background: var(--sunk); min-inline-size: 0; }
code { background: var(--sunk); border-radius: 4px; padding: 1px 4px; }
`;

/** Shows what the page around the frame says, from now on. */
export function showSurfaces() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(SHEET);
  document.adoptedStyleSheets = [sheet];
  const place = document.createElement("main");
  document.body.append(place);
  const view = new SurfacesView(place, (action) => sayAbove({ kind: "action", action }));
  addEventListener("message", (event) => {
    if (event.source !== parent || event.data?.kind !== "show") return;
    /** @type {[string, import("./surface_model.js").Surface][]} */
    const given = Object.entries(event.data.surfaces);
    for (const id of view.surfaces.keys()) if (!given.some(([name]) => name === id)) view.surfaces.delete(id);
    for (const [id, surface] of given) {
      const model = view.surfaces.get(id) ?? new SurfaceModel();
      view.surfaces.set(id, model);
      model.take(surface);
    }
    view.draw();
    sayAbove({ kind: "drawn", revision: event.data.revision });
  });
  openBridge();
}
