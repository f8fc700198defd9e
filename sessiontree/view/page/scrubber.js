/** The slider over a tree's facts: it shows the tree as it was at any of them. */

import { make, makeButton, setText } from "./elements.js";
import { formatClock, formatCount, wordsOf } from "./text.js";

/** @import { Desk } from "./session_tree.js" */

/** Asks for the tree at a fact; one question at a time, and only the newest wish counts. */
export class ScrubberView {
  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk;
    /** @type {number|null} */
    this.wish = null;
    this.isAsking = false;
    this.slider = make("input", { type: "range", min: 1, max: 1, value: 1, step: 1, "aria-label": "Fact of the tree" });
    this.words = make("span", { class: "moment" });
    this.live = makeButton("", () => this.leave(), { hidden: true });
    this.element = make("footer", { class: "scrubber", "aria-label": "History" }, this.slider, this.words, this.live);
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
  }

  /** Follows the newest fact, unless an older one is shown. */
  refresh() {
    const { newest, model, isPast } = this.desk;
    this.element.hidden = !this.desk.reads("past");
    this.slider.max = String(Math.max(1, newest.seq));
    if (!isPast && this.wish === null) this.slider.value = this.slider.max;
    this.live.hidden = !isPast;
    setText(this.live, newest.tree.is_live ? "Back to live" : "Back to the end");
    const words = `fact ${formatCount(model.seq)} of ${formatCount(newest.seq)} · ${formatClock(model.at_ms)}`;
    setText(this.words, words);
    this.slider.setAttribute("aria-valuetext", words);
  }

  /** @param {number} seq */
  async go(seq) {
    this.wish = seq;
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      while (this.wish !== null) {
        /** @type {number} */
        const asked = this.wish;
        if (asked >= this.desk.newest.seq) this.desk.showPast(null);
        else this.desk.showPast(await this.desk.ask("past", { seq: asked }));
        if (this.wish === asked) this.wish = null;
      }
    } catch (error) {
      this.wish = null;
      this.desk.say(wordsOf(error));
    }
    this.isAsking = false;
    this.refresh();
  }

  leave() {
    this.wish = null;
    this.desk.showPast(null);
    this.slider.focus();
  }
}
