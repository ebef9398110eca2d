// A statement that is executed: from the request to the rows. The lines of the answer are described in
// server/admin/console/sql_statements.py.

import { useEffect, useRef, useState } from "../html.js";
import { MAX_BYTES, MAX_ROWS } from "../query/records.js";
import { request, errorText } from "../request.js";

const PATH = "/console/sql";
const LOOK = 200;

/** Rows that come at once; more of them are asked for. */
export const STEP = 1_000;

/**
 * @typedef {object} ResultColumn
 * @property {string} name
 * @property {string} type
 *
 * @typedef {object} ResultRow
 * @property {string} id
 * @property {(string | null)[]} values
 *
 * @typedef {object} SqlError
 * @property {string} code
 * @property {string} message
 * @property {string} [detail]
 * @property {string} [hint]
 * @property {number} [position]  in characters from 1 on; 0 for nowhere
 *
 * @typedef {"running" | "live" | "waiting" | "done" | "failed" | "stopped"} Phase
 */

export class StatementRun {
  /** @param {string} text what the user has written @param {string} [prefix] what is put before it */
  constructor(text, prefix = "") {
    this.text = text;
    this.prefix = prefix;
    /** @type {Phase} */
    this.phase = "running";
    this.isLive = false;
    /** @type {ResultColumn[]} */
    this.columns = [];
    /** @type {ResultRow[]} */
    this.rows = [];
    /** @type {string[]} what statements without rows have done */
    this.tags = [];
    /** @type {SqlError | null} */
    this.error = null;
    /** Rows of a subscription that are not here any more. */
    this.lost = 0;
    this.version = 0;
    this.id = "";
    this.bytes = 0;
    this.count = 0;
    this.isStopping = false;
    this.answer = new AbortController();
  }

  get isOver() {
    return ["done", "failed", "stopped"].includes(this.phase);
  }

  /** Whether there are more rows than are here, which can be asked for. */
  get hasMore() {
    return this.phase === "waiting" && this.rows.length < MAX_ROWS;
  }

  /** Execute it, until its end. */
  async execute() {
    try {
      const body = JSON.stringify({ statement: this.prefix + this.text, rows: STEP });
      const answer = await request(PATH, { method: "POST", body, signal: this.answer.signal });
      if (!answer.ok) this.fail({ code: String(answer.status), message: await errorText(answer) });
      else await this.#read(/** @type {ReadableStream<Uint8Array>} */ (answer.body));
    } catch {
      this.fail({ code: "08006", message: "The connection to the server was lost." });
    }
  }

  /** Ask for the next rows. */
  more() {
    this.#goes("running");
    this.#ask("more");
  }

  /** End it; what has come stays. */
  stop() {
    if (this.isOver) return;
    this.isStopping = true;
    if (this.phase === "waiting" || !this.id) this.close();
    else this.#ask("cancel");
  }

  /** End it at once. */
  close() {
    if (!this.isOver) this.#goes("stopped");
    this.answer.abort();
  }

  /** @param {SqlError} error */
  fail(error) {
    if (this.isOver) return;
    if (this.isStopping) this.#goes("stopped");
    else {
      this.error = error;
      this.#goes("failed");
    }
  }

  /** @param {"more" | "cancel"} what */
  async #ask(what) {
    try {
      const answer = await request(`${PATH}/${what}`, { method: "POST", body: JSON.stringify({ id: this.id }) });
      if (!answer.ok) this.close();
    } catch {
      this.close();
    }
  }

  /** @param {ReadableStream<Uint8Array>} body */
  async #read(body) {
    const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = /** @type {string} */ (lines.pop());
      for (const line of lines) if (line) this.#take(JSON.parse(line));
      if (rest.length + this.bytes > MAX_BYTES && !this.isLive) {
        this.close();
        return;
      }
    }
    if (!this.isOver) this.fail({ code: "08006", message: "The connection to the server was lost." });
  }

  /** @param {any} line */
  #take(line) {
    if (line.id) {
      this.id = line.id;
      this.isLive = line.live;
      if (this.isLive) this.#goes("live");
      if (this.isStopping) this.#ask("cancel");
    } else if (line.columns) {
      this.columns = line.columns;
      this.rows = [];
      this.bytes = 0;
    } else if (line.rows) {
      this.#keep(line.rows);
    } else if (line.more) {
      this.#goes("waiting");
    } else if (line.tag) {
      this.tags.push(line.tag);
    } else if (line.error) {
      this.fail({ ...line.error, position: Math.max(0, line.error.position - this.prefix.length) });
    } else if (line.end && !this.isOver) {
      this.#goes("done");
    }
    this.version += 1;
  }

  /** @param {(string | null)[][]} rows */
  #keep(rows) {
    for (const values of rows) {
      this.count += 1;
      this.rows.push({ id: String(this.count), values });
      this.bytes += sizeOf(values);
    }
    if (!this.isLive) return;
    let first = 0;
    while (this.rows.length - first > MAX_ROWS || (this.bytes > MAX_BYTES && first < this.rows.length)) {
      this.bytes -= sizeOf(this.rows[first].values);
      first += 1;
    }
    this.rows.splice(0, first);
    this.lost += first;
  }

  /** @param {Phase} phase */
  #goes(phase) {
    this.phase = phase;
    this.version += 1;
  }
}

/** @param {(string | null)[]} values */
function sizeOf(values) {
  return values.reduce((size, value) => size + 8 + (value?.length ?? 0), 0);
}

/**
 * The statement that was executed last, for as long as the page is there, drawn a few times a second.
 * @returns {{ run: StatementRun | null, execute: (text: string, prefix?: string) => void }}
 */
export function useStatement() {
  const [, setVersion] = useState(0);
  const current = useRef(/** @type {StatementRun | null} */ (null));
  useEffect(() => {
    const timer = setInterval(() => setVersion(current.current?.version ?? 0), LOOK);
    return () => {
      clearInterval(timer);
      current.current?.close();
    };
  }, []);
  const execute = (/** @type {string} */ text, prefix = "") => {
    current.current?.close();
    current.current = new StatementRun(text, prefix);
    current.current.execute();
    setVersion(-1);
  };
  return { run: current.current, execute };
}

/**
 * The rows of a query of the page's own; none if it fails.
 * @param {string} statement
 */
export async function rowsOf(statement) {
  const run = new StatementRun(statement);
  const whole = run.execute();
  const timer = setInterval(() => {
    if (run.hasMore) run.more();
    else if (run.phase === "waiting") run.close();
  }, LOOK);
  await whole;
  clearInterval(timer);
  return run.rows.map((row) => row.values);
}
