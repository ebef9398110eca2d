// A live tree of /amps, updated by its server-sent events (`?watch`). Runs in workers, too.

import { Events } from "./events.js";
import { Tree } from "./tree.js";

/** @typedef {import("./events.js").ConnectionStatus} ConnectionStatus */

/** Watches a path. */
export class Watch {
  /**
   * @param {string} url of the events
   * @param {() => void} onChange called after each change of the tree or the status
   */
  constructor(url, onChange) {
    this.tree = new Tree();
    this._onChange = onChange;
    /** Whether the watched object has been removed. */
    this._hasEnded = false;
    this._events = new Events(url, (event) => this._onEvent(event), onChange);
  }

  /** @returns {ConnectionStatus} */
  get status() {
    const { status } = this._events;
    if (this._hasEnded) return { ...status, state: "gone" };
    return status.state === "live" && !this.tree.moment ? { ...status, state: "connecting" } : status;
  }

  /** Close the connection. */
  close() {
    this._events.close();
  }

  /** Connect now, after a `close` or during a retry pause. */
  resume() {
    if (!this._hasEnded) this._events.open();
  }

  /** @param {import("./events.js").ServerEvent} event */
  _onEvent({ name, data, id }) {
    if (name === "node") this.tree.load(JSON.parse(data), id);
    else if (name === "change") this.tree.apply(JSON.parse(data));
    else if (name === "gone") {
      this._hasEnded = true;
      this.close();
    }
    this._onChange();
  }
}
