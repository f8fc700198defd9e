/**
 * Runs in a folder of files: a page from a disk may not read files, but it may load scripts that stand beside it.
 * Each of them hands one JSON text over and does nothing else.
 */

import { FrozenSource } from "./source_frozen.js";

/** @import { RunHeadFacts, RunSource } from "./run_model.js" */
/** @import { PairWords } from "./source_runs.js" */
/** @import { Source } from "./model.js" */

const FILE_NAME = /^(?:runs|r\d+(?:\/\d+\/\d+)?)$/;
const SAMPLES_A_FOLDER = 1000;

/** Loads the files of the folder, each once at a time. */
class FileLoader {
  constructor() {
    /** @type {Map<string, (text: string) => void>} */
    this.waiting = new Map();
    const types = /** @type {any} */ (globalThis).trustedTypes;
    const rules = { createScriptURL: (/** @type {string} */ name) => `data/${name}.js` };
    this.policy = types ? types.createPolicy("sessiontree-files", rules) : rules;
    Object.defineProperty(globalThis, "takeFile", {
      value: (/** @type {string} */ name, /** @type {string} */ text) => this.waiting.get(name)?.(text),
    });
  }

  /** @param {string} name @returns {Promise<any>} */
  load(name) {
    if (!FILE_NAME.test(name)) throw new Error("There is no such file here.");
    return new Promise((settle, fail) => {
      const script = document.createElement("script");
      const end = () => {
        this.waiting.delete(name);
        script.remove();
      };
      this.waiting.set(name, (text) => {
        end();
        settle(JSON.parse(text));
      });
      script.addEventListener("error", () => {
        end();
        fail(new Error("This file of the folder is missing."));
      });
      script.src = this.policy.createScriptURL(name);
      document.head.append(script);
    });
  }
}

/** @implements {RunSource} */
class FolderRun {
  /** @param {FileLoader} files @param {number} number */
  constructor(files, number) {
    this.files = files;
    this.number = number;
  }

  /** @param {(news: any) => void} _onNews */
  open(_onNews) {
    return this.files.load(`r${this.number}`);
  }

  close() {}

  /** @param {string} verb @param {any} given */
  async ask(verb, given) {
    if (verb === "snapshot") return this.files.load(`r${this.number}`);
    if (verb !== "sample") throw new Error("This is not in the folder.");
    return this.files.load(`r${this.number}/${Math.floor(given.row / SAMPLES_A_FOLDER)}/${given.row}`);
  }
}

/** All runs of the folder. */
export class FolderRuns {
  constructor() {
    this.isLive = false;
    this.files = new FileLoader();
    /** @type {Promise<{runs: RunHeadFacts[], pairs: Record<string, PairWords>}>|null} */
    this.known = null;
  }

  #read() {
    this.known ??= this.files.load("runs");
    return this.known;
  }

  async list() {
    return (await this.#read()).runs;
  }

  /** @param {number} number @returns {RunSource} */
  openRun(number) {
    return new FolderRun(this.files, number);
  }

  /** @param {number} first @param {number} second @returns {Promise<PairWords>} */
  async pair(first, second) {
    const { pairs } = await this.#read();
    const name = `${first}-${second}`;
    if (Object.hasOwn(pairs, name)) return pairs[name];
    return { differences: [], table: [], why_not: "The comparison of these two runs is not in the folder." };
  }

  /** @param {number} _number @param {string} _tree @param {any} content @returns {Source|null} */
  openTree(_number, _tree, content) {
    return content.frozen ? new FrozenSource(content.frozen) : null;
  }
}
