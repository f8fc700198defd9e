/** What sessions did when: a lane a session, with spans of the model, of tools and of waiting. */

import { make, makeButton, makeForeign, makeShape, setText } from "./elements.js";
import { formatClock, formatDuration, wordsOf } from "./text.js";

/** @import { Desk } from "./session_tree.js" */

/** @typedef {[number, number, number|null, "model"|"tool"|"waiting", string, string]} Span */

const MOST_LANES = 60;
const MOST_SPANS = 2000;
const LANE_PX = 26;
const MOST_ZOOM = 64;
const SPAN_KINDS = new Set(["model", "tool", "waiting"]);
const TICK_STEPS_MS = [
  100, 500, 1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000, 604_800_000,
];

/** Swim lanes of the sessions that the list shows. */
export class TimelineView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.zoom = 1;
    /** @type {Span[]} */
    this.spans = [];
    /** @type {number[]} */
    this.lanes = [];
    this.lanesElement = make("div", { class: "lanes" });
    this.told = make("p", { class: "told", role: "status" }, "Choose a span to read what it is.");
    const legend = make("span", { class: "legend" });
    for (const kind of SPAN_KINDS) legend.append(make("span", { class: `of-${kind}` }, kind));
    this.element = make("div", { class: "timeline" },
      make("div", { class: "tools" }, legend,
        makeButton("−", () => this.#setZoom(this.zoom / 2), { "aria-label": "Show a longer time" }),
        makeButton("+", () => this.#setZoom(this.zoom * 2), { "aria-label": "Show a shorter time" }),
        makeButton("Refresh", () => this.load())),
      this.told, this.lanesElement);
  }

  /** @param {number} zoom */
  #setZoom(zoom) {
    this.zoom = Math.max(1, Math.min(MOST_ZOOM, zoom));
    this.draw();
  }

  /** Asks for the spans of the sessions in the list, from the first in sight on. */
  async load() {
    const { model } = this.desk;
    this.lanes = this.desk.rowsInSight(MOST_LANES);
    const sessions = this.lanes.map((row) => model.get(row, "path"));
    try {
      this.spans = (await this.desk.ask("timeline", { sessions, most: MOST_SPANS })).spans;
      this.draw();
    } catch (error) {
      this.lanesElement.replaceChildren(make("p", { class: "empty" }, wordsOf(error)));
    }
  }

  draw() {
    const { model } = this.desk;
    const ends = this.spans.map(([, start, end]) => end ?? Math.max(start, this.desk.now()));
    const from = this.spans.reduce((least, [, start]) => Math.min(least, start), Infinity);
    const to = ends.reduce((most, end) => Math.max(most, end), from + 1);
    if (!this.spans.length) {
      this.lanesElement.replaceChildren(make("p", { class: "empty" }, "These sessions did nothing yet."));
      return;
    }
    const names = make("div", { class: "names" }, make("div", { class: "lane-name" }));
    const width = Math.max(200, (this.element.clientWidth || 600) - (this.desk.isNarrow ? 92 : 150)) * this.zoom;
    const track = make("div", { class: "track", tabindex: 0, role: "group", "aria-label": "Lanes of the sessions" });
    track.append(makeAxis(from, to, width));
    const scale = width / (to - from);
    for (const row of this.lanes) {
      const own = this.spans.filter((span) => span[0] === row);
      if (!own.length) continue;
      const path = model.get(row, "path");
      const label = makeButton("", () => this.desk.show(path), { class: "lane-name link", title: path });
      label.append(makeForeign(model.get(row, "label") || path));
      names.append(label);
      track.append(this.#lane(row, own, from, scale, width));
    }
    this.lanesElement.replaceChildren(names, track);
  }

  /**
   * @param {number} row
   * @param {Span[]} spans
   * @param {number} from
   * @param {number} scale
   * @param {number} width
   */
  #lane(row, spans, from, scale, width) {
    const words = `${this.desk.model.get(row, "label")}: ${sumUp(spans, this.desk.now())}`;
    const lane = makeShape("svg", { class: "lane", width, height: LANE_PX, role: "img", "aria-label": words });
    for (const span of spans) {
      const [, start, end, kind, name] = span;
      const x = (start - from) * scale;
      const length = Math.max(2, ((end ?? Math.max(start, this.desk.now())) - start) * scale);
      const className = `span of-${SPAN_KINDS.has(kind) ? kind : "tool"}`;
      const box = makeShape("rect", { class: className, x, y: 4, width: length, height: LANE_PX - 8, rx: 2 });
      box.append(makeShape("title", {}, describeSpan(span, this.desk.now())));
      box.addEventListener("pointerenter", () => setText(this.told, describeSpan(span, this.desk.now())));
      box.addEventListener("click", () => setText(this.told, describeSpan(span, this.desk.now())));
      lane.append(box);
      const most = Math.floor((length - 8) / 7);
      const text = name.length > most ? `${name.slice(0, Math.max(0, most - 1))}…` : name;
      if (most > 3) lane.append(makeShape("text", { class: `of-${kind}`, x: x + 4, y: LANE_PX / 2 + 4 }, text));
    }
    return lane;
  }
}

/** @param {Span} span @param {number} now */
function describeSpan([, start, end, kind, name, why], now) {
  const took = formatDuration((end ?? Math.max(start, now)) - start);
  return `${formatClock(start)} · ${kind}${name ? ` ${name}` : ""} · ${took}${end ? "" : " so far"}${why ? ` · ${why}` : ""}`;
}

/** @param {Span[]} spans @param {number} now */
function sumUp(spans, now) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const [, start, end, kind] of spans) sums.set(kind, (sums.get(kind) ?? 0) + (end ?? Math.max(start, now)) - start);
  const open = spans.filter((span) => span[2] === null && span[5]).map((span) => span[5]);
  const words = [...sums].map(([kind, ms]) => `${kind} ${formatDuration(ms)}`);
  return [...words, ...open].join(", ");
}

/** @param {number} from @param {number} to @param {number} width */
function makeAxis(from, to, width) {
  const axis = makeShape("svg", { class: "axis", width, height: LANE_PX, "aria-hidden": "true" });
  const step = TICK_STEPS_MS.find((each) => ((to - from) / each) * 90 <= width) ?? (to - from) / 4;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = ((at - from) / (to - from)) * width;
    axis.append(makeShape("line", { x1: x, x2: x, y1: LANE_PX - 6, y2: LANE_PX }));
    if (x < width - 60) axis.append(makeShape("text", { x: x + 3, y: LANE_PX - 8 }, formatClock(at)));
  }
  return axis;
}
