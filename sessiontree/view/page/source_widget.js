/** A source over messages: a notebook's kernel behind a comm. */

/** @import { News, Snapshot } from "./model.js" */

/**
 * @typedef {{send(message: object): void, onMessage(callback: (message: any) => void): (() => void)|void}} Wire
 * @typedef {{settle: (value: any) => void, fail: (error: Error) => void, timer: ReturnType<typeof setTimeout>}}
 *   Asked
 */

const KERNEL_PATIENCE_MS = 60_000;

/** Asks by messages with an id, and hears news as messages. */
export class WidgetSource {
  /** @param {Wire} wire */
  constructor(wire) {
    this.wire = wire;
    this.lastId = 0;
    /** @type {Map<number, Asked>} */
    this.asked = new Map();
    /** @type {(news: News) => void} */
    this.onNews = () => {};
    /** @type {(() => void)|void} */
    this.leave = undefined;
    this.isListening = false;
  }

  /**
   * @param {(news: News) => void} onNews
   * @returns {Promise<Snapshot>}
   */
  async open(onNews) {
    this.onNews = onNews;
    if (!this.isListening) this.leave = this.wire.onMessage((message) => this.#hear(message));
    this.isListening = true;
    return this.ask("snapshot", {});
  }

  close() {
    this.onNews = () => {};
    if (this.leave) {
      this.leave();
      this.isListening = false;
    }
    for (const { fail, timer } of this.asked.values()) {
      clearTimeout(timer);
      fail(new Error("The view was closed."));
    }
    this.asked.clear();
  }

  /**
   * @param {string} verb
   * @param {object} given
   * @returns {Promise<any>}
   */
  ask(verb, given) {
    this.lastId += 1;
    const id = this.lastId;
    return new Promise((settle, fail) => {
      const timer = setTimeout(() => {
        this.asked.delete(id);
        this.onNews({ kind: "status", status: "reconnecting" });
        fail(new Error("The kernel does not answer."));
      }, KERNEL_PATIENCE_MS);
      this.asked.set(id, { settle, fail, timer });
      this.wire.send({ id, ask: verb, given });
    });
  }

  /** @param {any} message */
  #hear(message) {
    if (message === null || typeof message !== "object") return;
    if (message.news) {
      this.onNews(message.news);
      return;
    }
    const asked = this.asked.get(message.id);
    if (asked === undefined) return;
    this.asked.delete(message.id);
    clearTimeout(asked.timer);
    const error = message.error ?? message.value?.error;
    if (error) asked.fail(new Error(String(error)));
    else asked.settle(message.value);
  }
}
