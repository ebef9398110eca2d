// Server-sent events, with reconnects after growing pauses.
//
// They are read with fetch: EventSource does not report why a server refuses, which decides whether to
// retry or to log on. Runs in workers, too.

import { errorText, request } from "./request.js";

const MIN_RETRY_MS = 1_000;
const MAX_RETRY_MS = 15_000;
/** The server sends a comment at least every 15 seconds. */
const SILENCE_TIMEOUT_MS = 40_000;

/**
 * @typedef {object} ConnectionStatus  the status of a connection
 * @property {"connecting" | "live" | "away" | "refused" | "gone"} state
 * @property {number} since  time of the last change, in milliseconds since 1970
 * @property {string} reason  of a refusal
 *
 * @typedef {object} ServerEvent
 * @property {string} name
 * @property {string} data
 * @property {string} id
 */

export class Events {
  /**
   * @param {string} url
   * @param {(event: ServerEvent) => void} onEvent
   * @param {() => void} onStatus  called when `status` has changed
   */
  constructor(url, onEvent, onStatus) {
    /** @type {ConnectionStatus} */
    this.status = { state: "connecting", since: Date.now(), reason: "" };
    this._url = url;
    this._onEvent = onEvent;
    this._onStatus = onStatus;
    this._retryMs = MIN_RETRY_MS;
    this._timer = 0;
    this._lastId = "";
    /** @type {AbortController | null} */
    this._controller = null;
    this.open();
  }

  /** Close the connection. */
  close() {
    clearTimeout(this._timer);
    this._controller?.abort();
    this._controller = null;
  }

  /** Connect now, after a `close` or during a retry pause. */
  open() {
    if (this._controller && this.status.state === "live") return;
    this.close();
    this._controller = new AbortController();
    this._connect(this._controller.signal);
  }

  /** @param {AbortSignal} signal */
  async _connect(signal) {
    try {
      const headers = { Accept: "text/event-stream", ...(this._lastId && { "Last-Event-ID": this._lastId }) };
      const response = await request(this._url, { headers, signal, cache: "no-store" });
      if (!response.ok || !response.body) {
        const reason = await errorText(response);
        if (signal.aborted) return;
        if (response.status === 404) return this._setStatus("gone");
        this._setStatus("refused", reason);
      } else {
        this._retryMs = MIN_RETRY_MS;
        this._setStatus("live");
        for await (const event of readEvents(response.body)) {
          if (signal.aborted) return;
          if (event.id) this._lastId = event.id;
          this._onEvent(event);
        }
        this._setStatus("away");
      }
    } catch {
      if (signal.aborted) return;
      this._setStatus("away");
    }
    this._timer = setTimeout(() => this.open(), this._retryMs);
    this._retryMs = Math.min(this._retryMs * 2, MAX_RETRY_MS);
  }

  /** @param {ConnectionStatus["state"]} state */
  _setStatus(state, reason = "") {
    if (state === this.status.state && reason === this.status.reason) return;
    this.status = { state, since: Date.now(), reason };
    this._onStatus();
  }
}

/**
 * Split a stream into events; an event ends with an empty line.
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<ServerEvent>}
 */
async function* readEvents(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  /** @type {string[]} the pieces of an incomplete event, which may be large */
  let pieces = [];
  for (;;) {
    const silence = setTimeout(() => reader.cancel(), SILENCE_TIMEOUT_MS);
    const { done, value = "" } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const before = pieces.length ? pieces[pieces.length - 1].slice(-1) : "";
    pieces.push(value);
    if (!`${before}${value}`.includes("\n\n")) continue;
    const whole = pieces.join("").split("\n\n");
    pieces = [whole.pop() ?? ""];
    yield* whole.filter((text) => !text.startsWith(":")).map(parseEvent);
  }
}

/** @param {string} text @returns {ServerEvent} */
function parseEvent(text) {
  const fields = { event: "", data: "", id: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    const name = /** @type {keyof typeof fields} */ (line.slice(0, at));
    if (name in fields) fields[name] += (fields[name] && "\n") + line.slice(at + 2);
  }
  return { name: fields.event, data: fields.data, id: fields.id };
}
