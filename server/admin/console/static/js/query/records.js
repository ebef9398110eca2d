// What a query or a subscription has brought, as rows of a table; only so much of it is kept.
//
// Of records there is one row for each, which changes and leaves. Of messages each is a row, and the
// oldest go when there are too many. Bodies are taken apart when somebody looks at them, so that what
// is replaced before that costs next to nothing.

import { fieldsOf } from "../amps/bodies.js";

/** @typedef {import("../amps/messages.js").Message} Message */

export const MOST_ROWS = 10_000;
export const MOST_BYTES = 64 * 1024 * 1024;

/** How long a change is to be seen, in milliseconds. */
const SEEN = 1_500;
const SAMPLE = 50;

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
    /** @type {Record<string, string> | null} what it was when somebody looked last, while the change is to be seen */
    this.before = null;
    this.changedAt = 0;
    this.isLeaving = false;
  }

  get fields() {
    this.#fields ??= fieldsOf(this.type, this.body);
    return this.#fields;
  }

  /** What has been seen of it. */
  get seen() {
    return this.#fields ?? this.before;
  }
}

export class Records {
  /** @param {string} type the message type @param {boolean} areMessages whether each is a row of its own */
  constructor(type, areMessages) {
    this.type = type;
    this.areMessages = areMessages;
    /** @type {Set<string>} paths, in the order in which they came */
    this.paths = new Set();
    this.last = 0;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Map<string, Row>} */
    this.byId = new Map();
    /** @type {Set<Row>} */
    this.changing = new Set();
    this.bytes = 0;
    /** How many came that are not among the rows. */
    this.lost = 0;
    this.version = 1;
  }

  clear() {
    for (const kept of [this.rows, this.byId, this.changing]) kept.clear();
    this.bytes = 0;
    this.lost = 0;
    this.version += 1;
  }

  /** @param {Message} message @param {number} now @param {boolean} isChange whether it is to be seen that it came */
  take(message, now, isChange) {
    const { header, body } = message;
    this.version += 1;
    const key = this.areMessages || header.k === undefined ? `#${this.last + 1}` : `${header.t} ${header.k}`;
    const old = this.rows.get(key);
    if (!this.#makeRoom(body.length - (old?.body.length ?? 0), Boolean(old))) {
      this.lost += 1;
      return;
    }
    if (!old) this.last += 1;
    const row = new Row(old?.id ?? String(this.last), key, this.type, message);
    row.before = isChange && !this.areMessages ? (old?.seen ?? {}) : null;
    row.changedAt = now;
    if (old) this.changing.delete(old);
    if (row.before) this.changing.add(row);
    this.#keep(row, old);
  }

  /** A record is not in the result any more. @param {Message} message @param {number} now */
  leave({ header }, now) {
    const row = this.rows.get(`${header.t} ${header.k}`);
    if (!row) return;
    this.version += 1;
    row.isLeaving = true;
    row.changedAt = now;
    this.changing.add(row);
  }

  /** End what has been seen for long enough. @param {number} now */
  sweep(now) {
    for (const row of this.changing) {
      if (now - row.changedAt < SEEN) continue;
      this.version += 1;
      this.changing.delete(row);
      row.before = null;
      if (row.isLeaving) this.#drop(row);
    }
  }

  /** The rows in the order in which they came, and their fields made known. */
  list() {
    const rows = [...this.rows.values()];
    for (const row of this.#sampled(rows)) for (const path of Object.keys(row.fields)) this.paths.add(path);
    return rows;
  }

  /** @param {Row[]} rows */
  #sampled(rows) {
    return rows.length <= 2 * SAMPLE ? rows : [...rows.slice(0, SAMPLE), ...rows.slice(-SAMPLE)];
  }

  /** @param {Row} row @param {Row | undefined} old */
  #keep(row, old) {
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
    const isFull = () => this.bytes + bytes > MOST_BYTES || (!isKnown && this.rows.size >= MOST_ROWS);
    if (!this.areMessages || bytes > MOST_BYTES) return !isFull();
    for (const oldest of this.rows.values()) {
      if (!isFull()) break;
      this.#drop(oldest);
      this.lost += 1;
    }
    return true;
  }
}
