// The rows of a statement, to take away.

import { quoted } from "../query/exports.js";

/** @typedef {import("./run.js").ResultColumn} ResultColumn */
/** @typedef {import("./run.js").ResultRow} ResultRow */

/**
 * Rows as lines of values (RFC 4180), under the names of the columns. As with COPY, NULL is nothing, and an empty text is "".
 * @param {ResultRow[]} rows
 * @param {ResultColumn[]} columns
 */
export function csv(rows, columns) {
  const head = columns.map((column) => quoted(column.name));
  const lines = rows.map(({ values }) => values.map((value) => (value === null ? "" : quoted(value) || '""')));
  return [head, ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}

/**
 * Rows as a list of objects. Numbers that JavaScript cannot hold stay texts; a name that comes again gets a number.
 * @param {ResultRow[]} rows
 * @param {ResultColumn[]} columns
 */
export function json(rows, columns) {
  const names = distinct(columns.map((column) => column.name));
  const objects = rows.map(({ values }) => Object.fromEntries(values.map((value, at) => [names[at], typed(columns[at].type, value)])));
  return JSON.stringify(objects, null, 2);
}

/** @param {string[]} names */
function distinct(names) {
  const known = new Set();
  return names.map((name) => {
    let own = name;
    for (let number = 2; known.has(own); number += 1) own = `${name}_${number}`;
    known.add(own);
    return own;
  });
}

/** @param {string} type @param {string | null} value */
function typed(type, value) {
  if (value === null) return null;
  switch (type) {
    case "boolean":
      return value === "t";
    case "smallint":
    case "integer":
    case "bigint":
      return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    case "real":
    case "double precision":
      return Number.isFinite(Number(value)) ? Number(value) : value;
    case "json":
    case "jsonb":
      return JSON.parse(value);
    default:
      return value;
  }
}
