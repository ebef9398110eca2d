// What can be completed in a statement: names of tables and columns, and words of SQL.

import { rowsOf } from "./run.js";

const WORDS = `
  SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET DISTINCT ON AS AND OR NOT IN IS NULL LIKE ILIKE BETWEEN EXISTS CASE WHEN THEN
  ELSE END JOIN LEFT RIGHT FULL INNER CROSS USING UNION ALL EXCEPT INTERSECT WITH VALUES ASC DESC NULLS FIRST LAST OVER PARTITION
  FILTER COUNT SUM AVG MIN MAX COALESCE CAST INTERVAL NOW TRUE FALSE INSERT INTO UPDATE SET DELETE EXPLAIN ANALYZE SUBSCRIBE TO
  SNAPSHOT PROGRESS BOOKMARK SYSTEM_TIME OF FOR NOTIFY SHOW DATE_TRUNC EXTRACT ARRAY_AGG STRING_AGG ROW_NUMBER
`.trim().split(/\s+/);
const MAX_OFFERED = 12;
const PLAIN = /^[a-z_][a-z0-9_]*$/;

const LONGEST = 200;

/** The name that is being typed, with what qualifies it. */
const TYPED = /(?:((?:"(?:[^"]|"")*"|[\w$]+))\.)?("(?:[^"]|"")*|[\w$]*)$/;
const NAME = `(?:"(?:[^"]|"")*"|[A-Za-z_][\\w$]*)`;
const TABLE = new RegExp(`\\b(?:FROM|JOIN|INTO|UPDATE|TO)\\s+(?:(${NAME})\\.)?(${NAME})(?:\\s+(?:AS\\s+)?(${NAME}))?`, "gi");

/**
 * @typedef {object} KnownTable
 * @property {string} schema
 * @property {string} name
 * @property {string[]} columns
 */

/** The tables that the user may read. @returns {Promise<KnownTable[]>} */
export async function loadTables() {
  const rows = await rowsOf(
    "SELECT table_schema, table_name, column_name FROM information_schema.columns" +
      " WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_schema, table_name, ordinal_position",
  );
  /** @type {Map<string, KnownTable>} */
  const tables = new Map();
  for (const [schema, name, column] of /** @type {string[][]} */ (rows)) {
    const key = JSON.stringify([schema, name]);
    const table = tables.get(key) ?? { schema, name, columns: [] };
    tables.set(key, table);
    table.columns.push(column);
  }
  return [...tables.values()];
}

/**
 * What may be meant by what stands before the caret.
 * @param {string} statement
 * @param {number} caret
 * @param {KnownTable[]} tables
 * @param {boolean} isAsked whether the user asks for it, so that nothing need be typed
 * @returns {{ from: number, offered: string[] }} where it begins, and what can stand there
 */
export function complete(statement, caret, tables, isAsked) {
  const before = statement.slice(0, caret);
  const [, qualifier, typed] = /** @type {RegExpExecArray} */ (TYPED.exec(before.slice(-LONGEST)));
  const from = caret - typed.length;
  if (!typed && !qualifier && !isAsked) return { from, offered: [] };
  const named = tablesIn(statement, tables);
  const columns = (/** @type {KnownTable[]} */ some) => some.flatMap((table) => table.columns.map(quoted));
  let candidates;
  if (qualifier) {
    const owner = unquoted(qualifier);
    const own = named.filter(({ alias, table }) => alias === owner || table.name === owner).map(({ table }) => table);
    candidates = own.length ? columns(own) : tables.filter((table) => table.schema === owner).map((table) => quoted(table.name));
  } else {
    const isTable = /\b(?:FROM|JOIN|INTO|UPDATE|TO)\s+$/i.test(before.slice(0, from));
    const names = tables.map((table) => (table.schema === "amps" ? quoted(table.name) : `${quoted(table.schema)}.${quoted(table.name)}`));
    const fields = columns(named.map(({ table }) => table));
    candidates = isTable ? names : [...fields, ...names, ...WORDS];
  }
  return { from, offered: matching(candidates, typed.replace(/^"/, "")) };
}

/** The tables that a statement names, with the names that it gives them. @param {string} statement @param {KnownTable[]} tables */
function tablesIn(statement, tables) {
  return [...statement.matchAll(TABLE)].flatMap(([, schema, name, alias]) => {
    const wanted = unquoted(name);
    const found = tables.filter((table) => table.name === wanted && (!schema || table.schema === unquoted(schema)));
    return found.slice(0, 1).map((table) => ({ table, alias: alias ? unquoted(alias) : wanted }));
  });
}

/** @param {string[]} candidates @param {string} typed */
function matching(candidates, typed) {
  const wanted = typed.toLowerCase();
  const plain = (/** @type {string} */ word) => word.replace(/^"/, "").toLowerCase();
  const found = [...new Set(candidates)].filter((word) => plain(word).includes(wanted) && plain(word) !== wanted);
  const begins = (/** @type {string} */ word) => Number(!plain(word).startsWith(wanted));
  return found.sort((one, other) => begins(one) - begins(other)).slice(0, MAX_OFFERED);
}

/** A name as it is written in SQL. @param {string} name */
function quoted(name) {
  return PLAIN.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** @param {string} name */
function unquoted(name) {
  return name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name.toLowerCase();
}
