// The result of a query or a subscription, as rows of a table, up to a limit.
//
// A record has one row, which is updated and removed. Each message has a row, and the oldest rows are
// dropped beyond the limit. Bodies are parsed when they are displayed, so that a row that is replaced
// before costs little.

import { fieldsOf } from "../amps/bodies.js";

/** @typedef {import("../amps/messages.js").Message} Message */

export const MAX_ROWS = 10_000;
export const MAX_BYTES = 64 * 1024 * 1024;

/** Time for which a change is highlighted, in milliseconds. */
const HIGHLIGHT_MS = 1_500;
const SAMPLE_ROWS = 50;

export class Row {
  /** @type {Record<string, string> | null} */
  #fields = null;

  /**
   * @param {string} id
   * @param {string} key
   * @param {string} type
   * @param {Message} message
   */
  constructor(id, key, type, { header, body }) {
    this.id = id;
    this.key = key;
    this.type = type;
    this.header = header;
    this.body = body;
    this.topic = String(header.t ?? "");
    /** @type {Record<string, string> | null} the fields before the change, while it is highlighted */
    this.before = null;
    this.changedAt = 0;
    this.isRemoved = false;
  }

  get fields() {
    this.#fields ??= fieldsOf(this.type, this.body);
    return this.#fields;
  }

  /** The fields that have been displayed. */
  get displayedFields() {
    return this.#fields ?? this.before;
  }
}

export class Records {
  /** @param {string} type the message type @param {boolean} areMessages whether each message is a row */
  constructor(type, areMessages) {
    this.type = type;
    this.areMessages = areMessages;
    /** @type {Set<string>} paths of fields, in order of arrival */
    this.paths = new Set();
    this.lastId = 0;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Map<string, Row>} */
    this.byId = new Map();
    /** @type {Set<Row>} */
    this.changing = new Set();
    this.bytes = 0;
    /** Number of messages that were dropped. */
    this.dropped = 0;
    this.version = 1;
  }

  clear() {
    for (const kept of [this.rows, this.byId, this.changing]) kept.clear();
    this.bytes = 0;
    this.dropped = 0;
    this.version += 1;
  }

  /** @param {Message} message @param {number} now @param {boolean} isChange whether to highlight it */
  addMessage(message, now, isChange) {
    const { header, body } = message;
    this.version += 1;
    const key = this.areMessages || header.k === undefined ? `#${this.lastId + 1}` : `${header.t} ${header.k}`;
    const old = this.rows.get(key);
    if (!this.#makeRoom(body.length - (old?.body.length ?? 0), Boolean(old))) {
      this.dropped += 1;
      return;
    }
    if (!old) this.lastId += 1;
    const row = new Row(old?.id ?? String(this.lastId), key, this.type, message);
    row.before = isChange && !this.areMessages ? (old?.displayedFields ?? {}) : null;
    row.changedAt = now;
    if (old) this.changing.delete(old);
    if (row.before) this.changing.add(row);
    this.#store(row, old);
  }

  /** Remove a record from the result. @param {Message} message @param {number} now */
  removeRecord({ header }, now) {
    const row = this.rows.get(`${header.t} ${header.k}`);
    if (!row) return;
    this.version += 1;
    row.isRemoved = true;
    row.changedAt = now;
    this.changing.add(row);
  }

  /** End highlights that are old enough. @param {number} now */
  expireHighlights(now) {
    for (const row of this.changing) {
      if (now - row.changedAt < HIGHLIGHT_MS) continue;
      this.version += 1;
      this.changing.delete(row);
      row.before = null;
      if (row.isRemoved) this.#drop(row);
    }
  }

  /** Return the rows in order of arrival, and collect the paths of their fields. */
  list() {
    const rows = [...this.rows.values()];
    for (const row of this.#sampleOf(rows)) for (const path of Object.keys(row.fields)) this.paths.add(path);
    return rows;
  }

  /** @param {Row[]} rows */
  #sampleOf(rows) {
    return rows.length <= 2 * SAMPLE_ROWS ? rows : [...rows.slice(0, SAMPLE_ROWS), ...rows.slice(-SAMPLE_ROWS)];
  }

  /** @param {Row} row @param {Row | undefined} old */
  #store(row, old) {
    this.bytes += row.body.length - (old?.body.length ?? 0);
    this.rows.set(row.key, row);
    this.byId.set(row.id, row);
  }

  /** @param {Row} row */
  #drop(row) {
    this.bytes -= row.body.length;
    this.rows.delete(row.key);
    this.byId.delete(row.id);
  }

  /** @param {number} bytes @param {boolean} isKnown @returns {boolean} whether there is room */
  #makeRoom(bytes, isKnown) {
    const isFull = () => this.bytes + bytes > MAX_BYTES || (!isKnown && this.rows.size >= MAX_ROWS);
    if (!this.areMessages || bytes > MAX_BYTES) return !isFull();
    for (const oldest of this.rows.values()) {
      if (!isFull()) break;
      this.#drop(oldest);
      this.dropped += 1;
    }
    return true;
  }
}
