// What /amps tells as it happens (`?watch`), and the tree that comes of it. Runs in workers, too.

import { Events } from "./events.js";
import { Tree } from "./tree.js";

/** @typedef {import("./events.js").Standing} Standing */

/** Watches a path. */
export class Watch {
  /**
   * @param {string} url of the events
   * @param {() => void} told called after each change, of what is known or of how it stands
   */
  constructor(url, told) {
    this.tree = new Tree();
    this._told = told;
    /** Whether what was watched is there no more, which ends it. */
    this._hasEnded = false;
    this._events = new Events(url, (happening) => this._hear(happening), told);
  }

  /** @returns {Standing} */
  get standing() {
    const { standing } = this._events;
    if (this._hasEnded) return { ...standing, state: "gone" };
    return standing.state === "live" && !this.tree.moment ? { ...standing, state: "connecting" } : standing;
  }

  /** End it. */
  close() {
    this._events.close();
  }

  /** Connect now, after a `close` or while waiting. */
  resume() {
    if (!this._hasEnded) this._events.open();
  }

  /** @param {import("./events.js").Happening} happening */
  _hear({ name, data, id }) {
    if (name === "node") this.tree.load(JSON.parse(data), id);
    else if (name === "change") this.tree.apply(JSON.parse(data));
    else if (name === "gone") {
      this._hasEnded = true;
      this.close();
    }
    this._told();
  }
}
