// A query, a subscription or a replay that runs: from the connection to the rows.

import { useEffect, useRef, useState } from "../html.js";
import { Client } from "../amps/client.js";
import { Records } from "./records.js";

/**
 * @typedef {object} Plan  what is to be run
 * @property {string} type  the message type
 * @property {boolean} areMessages  whether each message is a row; else each record is
 * @property {boolean} ends  whether it is over when it is complete
 * @property {(bookmark: string) => import("../amps/messages.js").Header} command
 *   with the bookmark behind which it goes on after the connection was lost; empty at first
 *
 * @typedef {"connecting" | "loading" | "live" | "done" | "failed" | "refused" | "away" | "stopped"} Phase
 */

const LOOK = 200;

/** @type {import("../amps/client.js").Credentials | null} for as long as the page is loaded, and nowhere else */
let credentials = null;

/** Log on with these from now on. @param {import("../amps/client.js").Credentials} given */
export function logOnWith(given) {
  credentials = given;
}

/**
 * A connection for a message type, with the credentials that there are.
 * @param {string} url of the transport
 * @param {string} type
 * @param {(standing: import("../amps/client.js").Standing) => void} told
 */
export function connection(url, type, told) {
  return new Client(`${url.replace(/\/$/, "")}/amps/${encodeURIComponent(type)}`, credentials, told);
}

export class Run {
  /**
   * @param {Plan} plan
   * @param {string} url of the transport
   */
  constructor(plan, url) {
    this.plan = plan;
    this.records = new Records(plan.type, plan.areMessages);
    /** @type {Phase} */
    this.phase = "connecting";
    this.reason = "";
    this.bookmark = "";
    /** When the last message was published. */
    this.at = "";
    this.isPaused = false;
    this.isCaughtUp = false;
    this.id = "";
    this.client = connection(url, plan.type, (standing) => this.stands(standing));
  }

  /** @param {import("../amps/client.js").Standing} standing */
  stands({ state, reason }) {
    if (state === "live") this.begin();
    else if (state !== "connecting" || this.phase !== "away") this.goes(state, reason);
  }

  begin() {
    const header = this.plan.command(this.bookmark);
    if (!this.plan.areMessages) this.records.clear();
    this.isPaused = false;
    this.goes("loading");
    this.id = this.client.begin(
      header,
      (message) => this.hear(message),
      ({ what, reason }) => {
        if (what === "failed") this.end("failed", reason);
        else if (what === "completed" && this.plan.ends) this.end("done");
        else if (what === "completed" || header.c === "subscribe") this.goes("live");
        if (what === "completed") this.isCaughtUp = true;
      },
    );
  }

  /** @param {import("../amps/messages.js").Message} message */
  hear(message) {
    const { c, bm, ts } = message.header;
    if (c === "oof") this.records.leave(message, Date.now());
    else if (c === "p" || c === "publish" || c === "sow") {
      this.records.take(message, Date.now(), c !== "sow" && this.phase === "live");
      if (bm) this.bookmark = bm;
      if (ts) this.at = ts;
    }
  }

  /** @param {boolean} isPaused */
  setPaused(isPaused) {
    this.isPaused = isPaused;
    this.client.setPaused(this.id, this.plan.command("").t, isPaused);
    this.records.version += 1;
  }

  /** @param {Phase} phase @param {string} [reason] */
  goes(phase, reason = "") {
    this.phase = phase;
    this.reason = reason;
    this.records.version += 1;
  }

  /** @param {Phase} phase @param {string} [reason] */
  end(phase, reason) {
    this.client.close();
    this.goes(phase, reason);
  }

  stop() {
    if (!this.isOver) this.end("stopped");
  }

  get isOver() {
    return ["done", "failed", "refused", "stopped"].includes(this.phase);
  }
}

/**
 * Run a plan for as long as the page is there, and draw what has come a few times a second.
 * @param {Plan | null} plan
 * @param {string} url
 * @param {any[]} dependencies it is run anew when one of them has changed
 * @returns {Run | null}
 */
export function useRun(plan, url, dependencies) {
  const [, setVersion] = useState(0);
  const current = useRef(/** @type {Run | null} */ (null));
  useEffect(() => {
    if (!plan) return undefined;
    const run = new Run(plan, url);
    current.current = run;
    const look = () => {
      run.records.sweep(Date.now());
      setVersion(run.records.version);
    };
    setVersion(-1);
    const timer = setInterval(look, LOOK);
    return () => {
      clearInterval(timer);
      run.client.close();
      current.current = null;
      setVersion(-1);
    };
  }, [url, ...dependencies]);
  return current.current;
}
