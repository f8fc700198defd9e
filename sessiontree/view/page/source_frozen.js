/** A source of a tree that was saved: all answers are in the page. */

/** @import { Snapshot, News } from "./model.js" */

/**
 * @typedef {{snapshot: Snapshot, transcripts?: Record<string, any[]>, spans?: any[][],
 *   policies?: Record<string, object>, receipt?: object, replay?: object,
 *   parts?: Record<string, string>, images?: Record<string, {mime: string, base64: string}>,
 *   past?: Snapshot[], programs?: Record<string, Record<string, any>>}} FrozenTree
 * `transcripts`: all items by session. `parts`: by `seq:item:name`. `past`: snapshots in the order of their `seq`.
 */

/** Answers from saved data; nothing can be done with it. */
export class FrozenSource {
  /** @param {FrozenTree} data */
  constructor(data) {
    this.data = data;
    this.reads = new Set(["snapshot"]);
    const given = /** @type {[string, unknown][]} */ ([
      ["transcript", data.transcripts], ["find", data.transcripts], ["timeline", data.spans],
      ["policy", data.policies], ["receipt", data.receipt], ["replay", data.replay], ["program", data.programs],
      ["part", data.parts], ["image", data.images], ["past", data.past?.length],
    ]);
    for (const [verb, value] of given) if (value) this.reads.add(verb);
  }

  /** @param {(news: News) => void} _onNews */
  async open(_onNews) {
    return this.data.snapshot;
  }

  close() {}

  /**
   * @param {string} verb
   * @param {any} given
   */
  async ask(verb, given) {
    if (!this.reads.has(verb)) throw new Error("This is not in the saved page.");
    const data = this.data;
    if (verb === "snapshot") return data.snapshot;
    if (verb === "transcript") return this.#transcript(given.session, given.after ?? 0, given.most ?? 200);
    if (verb === "find") return this.#find(given.text.toLowerCase(), given.most ?? 50);
    if (verb === "timeline") return this.#timeline(given.sessions, given.most ?? 2000);
    if (verb === "past") return data.past?.findLast((each) => each.seq <= given.seq) ?? data.past?.[0];
    if (verb === "receipt") return data.receipt;
    if (verb === "replay") return data.replay;
    if (verb === "policy") return ownValue(data.policies, given.session);
    if (verb === "program") {
      const told = ownValue(ownValue(data.programs, given.session), given.key);
      return { ...told, steps: told.steps.slice(given.after, given.after + given.most) };
    }
    if (verb === "part") return { text: ownValue(data.parts, `${given.seq}:${given.item}:${given.name}`) };
    return ownValue(data.images, given.ref);
  }

  /**
   * @param {string} session
   * @param {number} after
   * @param {number} most
   */
  #transcript(session, after, most) {
    const items = ownValue(this.data.transcripts, session);
    const rest = items.filter((/** @type {{seq: number}} */ item) => item.seq > after);
    const page = rest.slice(0, most);
    return { items: page, next: rest.length > most ? page[page.length - 1].seq : null };
  }

  /**
   * @param {string} text
   * @param {number} most
   */
  #find(text, most) {
    const hits = [];
    const place = this.data.snapshot.columns.indexOf("path");
    for (const [row, values] of this.data.snapshot.rows.entries()) {
      for (const item of ownValue(this.data.transcripts, values[place], [])) {
        const whole = `${item.title}\n${item.text}`;
        const at = whole.toLowerCase().indexOf(text);
        if (at >= 0) hits.push([row, item.seq, whole.slice(Math.max(0, at - 40), at + 80)]);
        if (hits.length >= most) return { hits };
      }
    }
    return { hits };
  }

  /**
   * @param {string[]} sessions
   * @param {number} most
   */
  #timeline(sessions, most) {
    const { rows, columns } = this.data.snapshot;
    const place = columns.indexOf("path");
    const wanted = new Set(sessions);
    const spans = (this.data.spans ?? []).filter(([row]) => wanted.has(rows[row]?.[place]));
    return { spans: spans.slice(0, most) };
  }
}

/**
 * Returns a member that the data has itself: a session may have the name of a member of every object.
 * @template T
 * @param {Record<string, T>|undefined} from
 * @param {string} name
 * @param {T} [otherwise]
 * @returns {T}
 */
function ownValue(from, name, otherwise) {
  if (from !== undefined && Object.hasOwn(from, name)) return from[name];
  if (otherwise !== undefined) return otherwise;
  throw new Error("This is not in the saved page.");
}
