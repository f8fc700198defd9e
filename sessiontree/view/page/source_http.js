/** A source over HTTP at the page's own origin: questions by POST, news as server-sent events. */

/** @import { News, Snapshot } from "./model.js" */

const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 8000;
const SERVER_PATIENCE_MS = 60_000;
const UNKNOWN = "This browser is not let in: open the address that the server printed.";
const GONE = "The server does not answer: its program has ended, or it is out of reach.";

/** Follows a tree of `sessiontree serve`; a lost connection resumes at the revision that was reached. */
export class HttpSource {
  /** @param {string} base Path of the tree, without a slash at its end. */
  constructor(base) {
    this.base = base;
    this.feed = "";
    this.revision = 0;
    this.pause = FIRST_PAUSE_MS;
    this.isClosed = false;
    this.hasPages = true;
    this.framePath = `${base}/canvas/`;
    /** @type {EventSource|null} */
    this.events = null;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    this.timer = undefined;
  }

  /**
   * @param {(news: News) => void} onNews
   * @returns {Promise<Snapshot>}
   */
  async open(onNews) {
    this.isClosed = false;
    const snapshot = await this.ask("snapshot", {});
    this.#note(snapshot);
    this.#listen(onNews);
    return snapshot;
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.events?.close();
  }

  /**
   * @param {string} verb
   * @param {object} given
   * @returns {Promise<any>}
   */
  async ask(verb, given) {
    const answer = await fetch(`${this.base}/ask`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      credentials: "same-origin",
      redirect: "error",
      body: JSON.stringify({ verb, given }),
      signal: AbortSignal.timeout(SERVER_PATIENCE_MS),
    }).catch((error) => {
      throw error instanceof TypeError ? new Error(GONE) : error;
    });
    if (answer.status === 401) throw new Error(UNKNOWN);
    const value = await answer.json().catch(() => null);
    if (value?.error) throw new Error(String(value.error));
    if (!answer.ok || value === null) throw new Error(`The server answered ${answer.status}.`);
    if (verb === "snapshot") this.#note(value);
    return value;
  }

  /** @param {{feed: string, revision: number}} news */
  #note({ feed, revision }) {
    this.feed = feed;
    this.revision = revision;
  }

  /** @param {(news: News) => void} onNews */
  #listen(onNews) {
    if (this.isClosed) return;
    const since = `revision=${this.revision}&feed=${encodeURIComponent(this.feed)}`;
    const events = new EventSource(`${this.base}/feed?${since}`);
    this.events = events;
    const take = (/** @type {Event} */ event) => {
      this.pause = FIRST_PAUSE_MS;
      const news = JSON.parse(/** @type {MessageEvent} */ (event).data);
      this.#note(news);
      onNews(news);
    };
    events.onopen = () => {
      this.pause = FIRST_PAUSE_MS;
      onNews({ kind: "status", status: "connected" });
    };
    events.onmessage = take;
    events.addEventListener("snapshot", take);
    events.addEventListener("delta", take);
    events.addEventListener("farewell", () => {
      events.close(); // the server ends: whatever listens there later does not know this page
      onNews({ kind: "status", status: "closed" });
    });
    events.onerror = () => {
      events.close(); // its own attempt would ask from a revision of the past
      onNews({ kind: "status", status: "reconnecting" });
      this.timer = setTimeout(() => this.#listenAgain(onNews), this.pause * (0.5 + Math.random() / 2));
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    };
  }

  /** @param {(news: News) => void} onNews Listens again, unless the server does not know this page. */
  async #listenAgain(onNews) {
    const answer = await fetch(this.base, { method: "HEAD", credentials: "same-origin", redirect: "error" })
      .catch(() => null);
    if (this.isClosed) return;
    if (answer?.status === 401) onNews({ kind: "status", status: "refused" });
    else this.#listen(onNews);
  }
}
