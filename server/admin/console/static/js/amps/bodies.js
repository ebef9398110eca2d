// Parses bodies: their fields for tables, and a readable form.
//
// The server sends binary message types as JSON (option `pretty`); other binary bodies are shown as bytes.

import { xmlFields, xmlIndented } from "./xml.js";

/**
 * @typedef {"json" | "fields" | "xml" | "text" | "bytes" | "empty"} Form
 */

/** Larger bodies are not parsed for tables. */
export const MAX_PARSED_BYTES = 256 * 1024;
const MAX_FIELDS = 200;
const MAX_DEPTH = 8;
const SEPARATOR = "\u0001";
const BYTES_PER_LINE = 16;

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Return a body as text; null if it is not UTF-8. @param {Uint8Array} body */
export function textOf(body) {
  try {
    return strict.decode(body);
  } catch {
    return null;
  }
}

/**
 * Detect the format of a body.
 * @param {string} type the message type's name
 * @param {string | null} text
 * @returns {{ form: Form, value?: any }} `value` is the parsed JSON
 */
export function detectFormat(type, text) {
  if (text === null) return { form: "bytes" };
  if (text === "") return { form: "empty" };
  if (/^\s*[{[]/.test(text)) {
    try {
      return { form: "json", value: JSON.parse(text, keepNumber) };
    } catch {
      return { form: "text" };
    }
  }
  if (/fix/.test(type) && text.includes("=")) return { form: "fields" };
  if (type === "xml" && text.trimStart().startsWith("<")) return { form: "xml" };
  return { form: text.includes("\u0000") ? "bytes" : "text" };
}

/**
 * Keep numbers as they are written, if a JavaScript number cannot: 12345678901234567890, 1.0.
 * @param {string} _name @param {any} value @param {any} [context] missing in browsers before 2025
 */
function keepNumber(_name, value, context) {
  const source = context?.source;
  const isChanged = typeof value === "number" && source !== undefined && String(value) !== source;
  return isChanged ? /** @type {any} */ (JSON).rawJSON(source) : value;
}

/**
 * Return the fields of a body, by their paths in filters; none if it is too large.
 * @param {string} type
 * @param {Uint8Array} body
 * @returns {Record<string, string>}
 */
export function fieldsOf(type, body) {
  /** @type {Record<string, string>} */
  const found = Object.create(null);
  if (body.length > MAX_PARSED_BYTES) return found;
  const text = textOf(body);
  const { form, value } = detectFormat(type, text);
  if (form === "json") flatten(value, "", 0, found);
  else if (form === "fields") {
    for (const [name, field] of pairs(/** @type {string} */ (text))) add(found, `/${name}`, field);
  } else if (form === "xml") {
    for (const [path, field] of xmlFields(/** @type {string} */ (text))) add(found, path, field);
  }
  return found;
}

/** @param {Record<string, string>} found @param {string} path @param {string} value */
function add(found, path, value) {
  if (!(path in found) && Object.keys(found).length < MAX_FIELDS) found[path] = value;
}

/** @param {any} value @param {string} path @param {number} depth @param {Record<string, string>} found */
function flatten(value, path, depth, found) {
  if (value === null || typeof value !== "object") add(found, path || "/", String(value));
  else if (/** @type {any} */ (JSON).isRawJSON?.(value)) add(found, path || "/", value.rawJSON);
  else if (Array.isArray(value) || depth === MAX_DEPTH) add(found, path || "/", JSON.stringify(value));
  else for (const name of Object.keys(value)) flatten(value[name], `${path}/${name}`, depth + 1, found);
}

/** Return the fields of a fix or nvfix body. @param {string} text @returns {[string, string][]} */
export function pairs(text) {
  return text
    .split(SEPARATOR)
    .filter(Boolean)
    .map((pair) => {
      const at = pair.indexOf("=");
      return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)];
    });
}

/**
 * Format a text body for display.
 * @param {string} type
 * @param {string} text
 */
export function formatted(type, text) {
  const { form, value } = detectFormat(type, text);
  if (form === "json") return JSON.stringify(value, null, 2);
  if (form === "fields") return pairs(text).map(([name, field]) => `${name} = ${field}`).join("\n");
  return form === "xml" ? xmlIndented(text) : text;
}

/** Return a hex dump: offset, bytes, printable characters. @param {Uint8Array} body */
export function hexDump(body) {
  const lines = [];
  for (let at = 0; at < body.length; at += BYTES_PER_LINE) {
    const row = [...body.subarray(at, at + BYTES_PER_LINE)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(3 * BYTES_PER_LINE - 1)}  ${letters}`);
  }
  return lines.join("\n");
}
