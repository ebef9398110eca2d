// Server-sent events. A connection that has ended is made again, with a pause that grows.
//
// They are read with fetch: the browser's own EventSource does not tell why a server refuses, and one
// has to know whether to wait, to log on, or to ask for something else. Runs in workers, too.

import { request, said } from "./request.js";

const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 15_000;
/** The server says at least every 15 seconds that it is there. */
const LONGEST_SILENCE = 40_000;

/**
 * @typedef {object} Standing  how a connection stands
 * @property {"connecting" | "live" | "away" | "refused" | "gone"} state
 * @property {number} since  when that began, in milliseconds
 * @property {string} reason  of what is refused
 *
 * @typedef {object} Happening
 * @property {string} name
 * @property {string} data
 * @property {string} id
 */

export class Events {
  /**
   * @param {string} url
   * @param {(happening: Happening) => void} heard
   * @param {() => void} stands  called when `standing` has changed
   */
  constructor(url, heard, stands) {
    /** @type {Standing} */
    this.standing = { state: "connecting", since: Date.now(), reason: "" };
    this._url = url;
    this._heard = heard;
    this._stands = stands;
    this._pause = FIRST_PAUSE;
    this._timer = 0;
    this._last = "";
    /** @type {AbortController | null} */
    this._given = null;
    this.open();
  }

  /** End it. */
  close() {
    clearTimeout(this._timer);
    this._given?.abort();
    this._given = null;
  }

  /** Connect now, after a `close` or while waiting. */
  open() {
    if (this._given && this.standing.state === "live") return;
    this.close();
    this._given = new AbortController();
    this._follow(this._given.signal);
  }

  /** @param {AbortSignal} signal */
  async _follow(signal) {
    try {
      const headers = { Accept: "text/event-stream", ...(this._last && { "Last-Event-ID": this._last }) };
      const answer = await request(this._url, { headers, signal, cache: "no-store" });
      if (!answer.ok || !answer.body) {
        const reason = await said(answer);
        if (signal.aborted) return;
        if (answer.status === 404) return this._goes("gone");
        this._goes("refused", reason);
      } else {
        this._pause = FIRST_PAUSE;
        this._goes("live");
        for await (const happening of happenings(answer.body)) {
          if (signal.aborted) return;
          if (happening.id) this._last = happening.id;
          this._heard(happening);
        }
        this._goes("away");
      }
    } catch {
      if (signal.aborted) return;
      this._goes("away");
    }
    this._timer = setTimeout(() => this.open(), this._pause);
    this._pause = Math.min(this._pause * 2, LONGEST_PAUSE);
  }

  /** @param {Standing["state"]} state */
  _goes(state, reason = "") {
    if (state === this.standing.state && reason === this.standing.reason) return;
    this.standing = { state, since: Date.now(), reason };
    this._stands();
  }
}

/**
 * Take a stream apart; an event ends with an empty line.
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<Happening>}
 */
async function* happenings(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  /** @type {string[]} what has come of the event that is not whole yet, in pieces: it may be large */
  let pieces = [];
  for (;;) {
    const silence = setTimeout(() => reader.cancel(), LONGEST_SILENCE);
    const { done, value = "" } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const before = pieces.length ? pieces[pieces.length - 1].slice(-1) : "";
    pieces.push(value);
    if (!`${before}${value}`.includes("\n\n")) continue;
    const whole = pieces.join("").split("\n\n");
    pieces = [whole.pop() ?? ""];
    yield* whole.filter((text) => !text.startsWith(":")).map(happening);
  }
}

/** @param {string} text @returns {Happening} */
function happening(text) {
  const found = { event: "", data: "", id: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    const name = /** @type {keyof typeof found} */ (line.slice(0, at));
    if (name in found) found[name] += (found[name] && "\n") + line.slice(at + 2);
  }
  return { name: found.event, data: found.data, id: found.id };
}
