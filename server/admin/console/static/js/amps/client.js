// A client of the server over the websocket transport: one connection, with its subscriptions.
//
// A lost connection is opened again after growing pauses. The caller is notified, and has to subscribe
// again. A refused logon is not retried.

import { decode, encode } from "./messages.js";

/**
 * @typedef {"connecting" | "live" | "away" | "refused"} State
 *
 * @typedef {object} ConnectionStatus
 * @property {State} state
 * @property {string} reason  of a refusal or a lost connection
 *
 * @typedef {object} Credentials
 * @property {string} user
 * @property {string} password
 *
 * @typedef {import("./messages.js").Header} Header
 * @typedef {import("./messages.js").Message} Message
 */

const MIN_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;
const CONNECT_TIMEOUT_MS = 20_000;
const NORMAL_CLOSE = 1000;

/** Return the reason of a failure ack. @param {Header} ack */
function failureText(ack) {
  return [ack.reason, ack.detail].filter(Boolean).join(": ") || "the server gave no reason";
}

/** Return the reason why a browser rejects an address. @param {string} url */
function addressProblem(url) {
  return location.protocol === "https:" && url.startsWith("ws:")
    ? "this page was loaded over TLS, and can only connect over TLS: the transport of SQLTransport needs a Certificate"
    : `${url} is not an address that browsers accept: see SQLTransportInetAddr`;
}

export class Client {
  /**
   * @param {string} url with the message type at its end, as in ws://host:9008/amps/json
   * @param {Credentials | null} credentials
   * @param {(status: ConnectionStatus) => void} onStatus called for each change; `away` ends all subscriptions
   */
  constructor(url, credentials, onStatus) {
    this.url = url;
    this.credentials = credentials;
    this.onStatus = onStatus;
    this.name = `console-${Math.random().toString(36).slice(2, 10)}`;
    this.lastId = 0;
    this.retryMs = MIN_RETRY_MS;
    this.timer = 0;
    this.isClosed = false;
    /** @type {Map<string, (ack: Header) => void>} */
    this.acks = new Map();
    /** @type {Map<string, (message: Message) => void>} */
    this.listeners = new Map();
    this.open();
  }

  open() {
    this.onStatus({ state: "connecting", reason: "" });
    this.wasOpen = false;
    let socket;
    try {
      socket = new WebSocket(this.url);
    } catch {
      this.timer = setTimeout(() => this.onConnectionLost({ reason: addressProblem(this.url), code: 0 }));
      return;
    }
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      clearTimeout(this.timer);
      this.logOn();
    };
    // no event reports a connection that the page's policy forbids
    this.timer = setTimeout(() => {
      socket.onclose = null;
      socket.close();
      this.onConnectionLost({ reason: "", code: 0 });
    }, CONNECT_TIMEOUT_MS);
    socket.onmessage = ({ data }) => this.receive(data);
    socket.onclose = (event) => socket === this.socket && this.onConnectionLost(event);
  }

  logOn() {
    this.wasOpen = true;
    const { user, password } = this.credentials ?? { user: "", password: "" };
    const header = { c: "logon", client_name: this.name, o: "pretty=true", user_id: user, pw: password };
    this.command(header, "processed", (ack) => {
      if (ack.status !== "failure") {
        this.retryMs = MIN_RETRY_MS;
        this.onStatus({ state: "live", reason: "" });
        return;
      }
      this.close();
      this.onStatus({ state: "refused", reason: failureText(ack) });
    });
  }

  /** @param {{ reason: string, code: number }} event */
  onConnectionLost({ reason, code }) {
    clearTimeout(this.timer);
    this.acks.clear();
    this.listeners.clear();
    if (this.isClosed) return;
    const why = reason || (this.wasOpen ? `the connection was lost (${code})` : `cannot connect to ${this.url}`);
    this.onStatus({ state: "away", reason: why });
    this.timer = setTimeout(() => this.open(), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, MAX_RETRY_MS);
  }

  /** @param {string | ArrayBuffer} data */
  receive(data) {
    for (const message of decode(data)) {
      const { header } = message;
      if (header.c === "ack") this.onAck(header);
      // a record has the id of its query, a message the ids of all its subscriptions
      for (const id of String(header.query_id ?? header.sids ?? header.sub_id ?? "").split(",")) {
        this.listeners.get(id)?.(message);
      }
    }
  }

  /** @param {Header} ack */
  onAck(ack) {
    const key = `${ack.cid} ${ack.a}`;
    const callback = this.acks.get(key);
    this.acks.delete(key);
    callback?.(ack);
  }

  /**
   * Send a command.
   * @param {Header} header without its id
   * @param {string} acks comma-separated types of requested acks
   * @param {(ack: Header) => void} onAck called for each of them
   * @returns {string} the command's id
   */
  command(header, acks, onAck) {
    this.lastId += 1;
    const cid = String(this.lastId);
    for (const ack of acks.split(",")) this.acks.set(`${cid} ${ack}`, onAck);
    this.socket?.send(encode({ ...header, cid, a: acks }));
    return cid;
  }

  /**
   * Send a query or a subscription.
   * @param {Header} header without its ids
   * @param {(message: Message) => void} onMessage called for each message, until the unsubscribe
   * @param {(result: { state: "processed" | "completed" | "failed", reason: string }) => void} onResult
   * @returns {string} the id to unsubscribe with
   */
  begin(header, onMessage, onResult) {
    const id = `${this.name}-${this.lastId + 1}`;
    this.listeners.set(id, onMessage);
    const ids = header.c === "sow" ? { query_id: id } : { query_id: id, sub_id: id };
    this.command({ ...header, ...ids }, "processed,completed", (ack) => {
      if (ack.status === "failure") onResult({ state: "failed", reason: failureText(ack) });
      else onResult({ state: ack.a, reason: "" });
    });
    return id;
  }

  /** @param {string} id */
  unsubscribe(id) {
    if (!this.listeners.delete(id)) return;
    if (this.socket?.readyState === WebSocket.OPEN) this.command({ c: "unsubscribe", sub_id: id }, "processed", () => {});
  }

  /**
   * Pause or resume a replay.
   * @param {string} id
   * @param {string} topic
   * @param {boolean} isPaused
   */
  setPaused(id, topic, isPaused) {
    this.command({ c: "subscribe", t: topic, sub_id: id, o: isPaused ? "pause" : "resume" }, "processed", () => {});
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.socket?.close(NORMAL_CLOSE);
  }
}
