// Exports rows as CSV and JSON files.

import { valueOf } from "../tables/arrange.js";
import { detectFormat, textOf } from "../amps/bodies.js";

/** @typedef {import("./records.js").Row} Row */

/**
 * Format rows as CSV (RFC 4180), with a header line.
 * @param {Row[]} rows
 * @param {import("../tables/arrange.js").Column[]} columns
 */
export function csv(rows, columns) {
  const lines = [columns.map((column) => column.label), ...rows.map((row) => columns.map((column) => String(valueOf(row, column))))];
  return lines.map((line) => `${line.map(quoted).join(",")}\r\n`).join("");
}

/** A value of a line. @param {string} text */
export function quoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * Format rows as a list of headers and bodies: JSON bodies as JSON, binary bodies as base64.
 * @param {Row[]} rows
 */
export function json(rows) {
  return JSON.stringify(rows.map((row) => ({ header: row.header, ...bodyOf(row) })), null, 2);
}

const CHUNK_BYTES = 8_192;

/** @param {Row} row */
function bodyOf({ type, body }) {
  const text = textOf(body);
  if (text !== null) {
    const { form, value } = detectFormat(type, text);
    return { body: form === "json" ? value : text };
  }
  let binary = "";
  for (let at = 0; at < body.length; at += CHUNK_BYTES) binary += String.fromCharCode(...body.subarray(at, at + CHUNK_BYTES));
  return { base64: btoa(binary) };
}

/** Save a file in the browser. @param {string} name @param {string} type @param {string | Uint8Array} content */
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([/** @type {any} */ (content)], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
