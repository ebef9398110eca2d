// Runs a query, a subscription or a replay: from the connection to the rows.

import { useEffect, useRef, useState } from "../html.js";
import { Client } from "../amps/client.js";
import { Records } from "./records.js";

/**
 * @typedef {object} Plan  the command to run
 * @property {string} type  the message type
 * @property {boolean} areMessages  whether each message is a row; otherwise each record
 * @property {boolean} ends  whether it ends on completion
 * @property {(bookmark: string) => import("../amps/messages.js").Header} command
 *   takes the bookmark to resume after; empty at first
 *
 * @typedef {"connecting" | "loading" | "live" | "done" | "failed" | "refused" | "away" | "stopped"} Phase
 */

const REFRESH_MS = 200;

/** @type {import("../amps/client.js").Credentials | null} kept until the page is closed, and stored nowhere */
let credentials = null;

/** Set the credentials of later logons. @param {import("../amps/client.js").Credentials} latest */
export function setCredentials(latest) {
  credentials = latest;
}

/**
 * Open a connection for a message type, with the current credentials.
 * @param {string} url of the transport
 * @param {string} type
 * @param {(status: import("../amps/client.js").ConnectionStatus) => void} onStatus
 */
export function connection(url, type, onStatus) {
  return new Client(`${url.replace(/\/$/, "")}/amps/${encodeURIComponent(type)}`, credentials, onStatus);
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
    /** Time of the last message. */
    this.lastTime = "";
    this.isPaused = false;
    this.isCaughtUp = false;
    this.id = "";
    this.client = connection(url, plan.type, (status) => this.onStatus(status));
  }

  /** @param {import("../amps/client.js").ConnectionStatus} status */
  onStatus({ state, reason }) {
    if (state === "live") this.start();
    else if (state !== "connecting" || this.phase !== "away") this.setPhase(state, reason);
  }

  start() {
    const header = this.plan.command(this.bookmark);
    if (!this.plan.areMessages) this.records.clear();
    this.isPaused = false;
    this.setPhase("loading");
    this.id = this.client.begin(
      header,
      (message) => this.onMessage(message),
      ({ state, reason }) => {
        if (state === "failed") this.end("failed", reason);
        else if (state === "completed" && this.plan.ends) this.end("done");
        else if (state === "completed" || header.c === "subscribe") this.setPhase("live");
        if (state === "completed") this.isCaughtUp = true;
      },
    );
  }

  /** @param {import("../amps/messages.js").Message} message */
  onMessage(message) {
    const { c, bm, ts } = message.header;
    if (c === "oof") this.records.removeRecord(message, Date.now());
    else if (c === "p" || c === "publish" || c === "sow") {
      this.records.addMessage(message, Date.now(), c !== "sow" && this.phase === "live");
      if (bm) this.bookmark = bm;
      if (ts) this.lastTime = ts;
    }
  }

  /** @param {boolean} isPaused */
  setPaused(isPaused) {
    this.isPaused = isPaused;
    this.client.setPaused(this.id, this.plan.command("").t, isPaused);
    this.records.version += 1;
  }

  /** @param {Phase} phase @param {string} [reason] */
  setPhase(phase, reason = "") {
    this.phase = phase;
    this.reason = reason;
    this.records.version += 1;
  }

  /** @param {Phase} phase @param {string} [reason] */
  end(phase, reason) {
    this.client.close();
    this.setPhase(phase, reason);
  }

  stop() {
    if (!this.isOver) this.end("stopped");
  }

  get isOver() {
    return ["done", "failed", "refused", "stopped"].includes(this.phase);
  }
}

/**
 * Run a plan while the page is shown, and redraw the rows a few times per second.
 * @param {Plan | null} plan
 * @param {string} url
 * @param {any[]} dependencies a change of one of them restarts the run
 * @returns {Run | null}
 */
export function useRun(plan, url, dependencies) {
  const [, setVersion] = useState(0);
  const current = useRef(/** @type {Run | null} */ (null));
  useEffect(() => {
    if (!plan) return undefined;
    const run = new Run(plan, url);
    current.current = run;
    const refresh = () => {
      run.records.expireHighlights(Date.now());
      setVersion(run.records.version);
    };
    setVersion(-1);
    const timer = setInterval(refresh, REFRESH_MS);
    return () => {
      clearInterval(timer);
      run.client.close();
      current.current = null;
      setVersion(-1);
    };
  }, [url, ...dependencies]);
  return current.current;
}
