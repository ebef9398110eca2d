// A client of the server over the websocket transport: one connection, and what is subscribed to with it.
//
// A connection that is lost is opened again, in intervals that grow, and whoever uses it is told, so that
// it subscribes again as it thinks fit. A logon that is refused is not tried again by itself.

import { read, written } from "./messages.js";

/**
 * @typedef {"connecting" | "live" | "away" | "refused"} State
 *
 * @typedef {object} Standing
 * @property {State} state
 * @property {string} reason  why it is refused or away
 *
 * @typedef {object} Credentials
 * @property {string} user
 * @property {string} password
 *
 * @typedef {import("./messages.js").Header} Header
 * @typedef {import("./messages.js").Message} Message
 */

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
const PATIENCE = 20_000;
const NORMAL_CLOSE = 1000;

/** What a refused command says. @param {Header} ack */
function failure(ack) {
  return [ack.reason, ack.detail].filter(Boolean).join(": ") || "the server gave no reason";
}

/** Why browsers do not even try to connect with an address. @param {string} url */
function unfit(url) {
  return location.protocol === "https:" && url.startsWith("ws:")
    ? "this page came over TLS, and may connect with transports over TLS only: the one that SQLTransport names needs a Certificate"
    : `${url} is no address that browsers connect with: see SQLTransportInetAddr`;
}

export class Client {
  /**
   * @param {string} url with the message type at its end, as in ws://host:9008/amps/json
   * @param {Credentials | null} credentials
   * @param {(standing: Standing) => void} told of each change; what was subscribed to is gone with `away`
   */
  constructor(url, credentials, told) {
    this.url = url;
    this.credentials = credentials;
    this.told = told;
    this.name = `console-${Math.random().toString(36).slice(2, 10)}`;
    this.last = 0;
    this.pause = FIRST_PAUSE;
    this.timer = 0;
    this.isClosed = false;
    /** @type {Map<string, (ack: Header) => void>} */
    this.acks = new Map();
    /** @type {Map<string, (message: Message) => void>} */
    this.listeners = new Map();
    this.open();
  }

  open() {
    this.told({ state: "connecting", reason: "" });
    this.wasOpen = false;
    let socket;
    try {
      socket = new WebSocket(this.url);
    } catch {
      this.timer = setTimeout(() => this.lost({ reason: unfit(this.url), code: 0 }));
      return;
    }
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      clearTimeout(this.timer);
      this.logOn();
    };
    // one that the page's policy forbids is not said to have failed
    this.timer = setTimeout(() => {
      socket.onclose = null;
      socket.close();
      this.lost({ reason: "", code: 0 });
    }, PATIENCE);
    socket.onmessage = ({ data }) => this.receive(data);
    socket.onclose = (event) => socket === this.socket && this.lost(event);
  }

  logOn() {
    this.wasOpen = true;
    const { user, password } = this.credentials ?? { user: "", password: "" };
    const header = { c: "logon", client_name: this.name, o: "pretty=true", user_id: user, pw: password };
    this.command(header, "processed", (ack) => {
      if (ack.status !== "failure") {
        this.pause = FIRST_PAUSE;
        this.told({ state: "live", reason: "" });
        return;
      }
      this.close();
      this.told({ state: "refused", reason: failure(ack) });
    });
  }

  /** @param {{ reason: string, code: number }} event */
  lost({ reason, code }) {
    clearTimeout(this.timer);
    this.acks.clear();
    this.listeners.clear();
    if (this.isClosed) return;
    const why = reason || (this.wasOpen ? `the connection was lost (${code})` : `no connection with ${this.url} could be made`);
    this.told({ state: "away", reason: why });
    this.timer = setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
  }

  /** @param {string | ArrayBuffer} data */
  receive(data) {
    for (const message of read(data)) {
      const { header } = message;
      if (header.c === "ack") this.answered(header);
      // records of a query have its id, messages those of all subscriptions that they are for
      for (const id of String(header.query_id ?? header.sids ?? header.sub_id ?? "").split(",")) {
        this.listeners.get(id)?.(message);
      }
    }
  }

  /** @param {Header} ack */
  answered(ack) {
    const key = `${ack.cid} ${ack.a}`;
    const heard = this.acks.get(key);
    this.acks.delete(key);
    heard?.(ack);
  }

  /**
   * Send a command.
   * @param {Header} header without its id
   * @param {string} acks those that are wanted, with commas
   * @param {(ack: Header) => void} heard for each of them
   * @returns {string} the command's id
   */
  command(header, acks, heard) {
    this.last += 1;
    const cid = String(this.last);
    for (const ack of acks.split(",")) this.acks.set(`${cid} ${ack}`, heard);
    this.socket?.send(written({ ...header, cid, a: acks }));
    return cid;
  }

  /**
   * Send a query or a subscription.
   * @param {Header} header without its ids
   * @param {(message: Message) => void} heard for each message of it, until it is unsubscribed
   * @param {(ended: { what: "processed" | "completed" | "failed", reason: string }) => void} told how it goes
   * @returns {string} what it is unsubscribed by
   */
  begin(header, heard, told) {
    const id = `${this.name}-${this.last + 1}`;
    this.listeners.set(id, heard);
    const ids = header.c === "sow" ? { query_id: id } : { query_id: id, sub_id: id };
    this.command({ ...header, ...ids }, "processed,completed", (ack) => {
      if (ack.status === "failure") told({ what: "failed", reason: failure(ack) });
      else told({ what: ack.a, reason: "" });
    });
    return id;
  }

  /** @param {string} id */
  unsubscribe(id) {
    if (!this.listeners.delete(id)) return;
    if (this.socket?.readyState === WebSocket.OPEN) this.command({ c: "unsubscribe", sub_id: id }, "processed", () => {});
  }

  /**
   * Pause a replay, or let it go on.
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
