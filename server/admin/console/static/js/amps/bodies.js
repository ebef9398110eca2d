// What is in bodies: the fields by which a table shows them, and a form that people can read.
//
// Of the binary message types the server sends JSON (option `pretty`); what is no text is shown as bytes.

import { xmlFields, xmlIndented } from "./xml.js";

/**
 * @typedef {"json" | "fields" | "xml" | "text" | "bytes" | "nothing"} Form
 */

/** Bodies that are larger are not taken apart for a table. */
export const LARGEST_READ = 256 * 1024;
const MOST_FIELDS = 200;
const DEEPEST = 8;
const SEPARATOR = "\u0001";
const ROW = 16;

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A body as text; null if it is none. @param {Uint8Array} body */
export function textOf(body) {
  try {
    return strict.decode(body);
  } catch {
    return null;
  }
}

/**
 * What a body seems to be.
 * @param {string} type the message type's name
 * @param {string | null} text
 * @returns {{ form: Form, value?: any }} with the value of JSON
 */
export function recognized(type, text) {
  if (text === null) return { form: "bytes" };
  if (text === "") return { form: "nothing" };
  if (/^\s*[{[]/.test(text)) {
    try {
      return { form: "json", value: JSON.parse(text, kept) };
    } catch {
      return { form: "text" };
    }
  }
  if (/fix/.test(type) && text.includes("=")) return { form: "fields" };
  if (type === "xml" && text.trimStart().startsWith("<")) return { form: "xml" };
  return { form: text.includes("\u0000") ? "bytes" : "text" };
}

/**
 * Numbers stay as they are written, which the language's own cannot always: 12345678901234567890, 1.0.
 * @param {string} _name @param {any} value @param {any} [context] browsers of before 2025 may lack it
 */
function kept(_name, value, context) {
  const source = context?.source;
  const isChanged = typeof value === "number" && source !== undefined && String(value) !== source;
  return isChanged ? /** @type {any} */ (JSON).rawJSON(source) : value;
}

/**
 * The fields of a body, by their paths as filters have them; none of a body that is too large or has none.
 * @param {string} type
 * @param {Uint8Array} body
 * @returns {Record<string, string>}
 */
export function fieldsOf(type, body) {
  /** @type {Record<string, string>} */
  const found = Object.create(null);
  if (body.length > LARGEST_READ) return found;
  const text = textOf(body);
  const { form, value } = recognized(type, text);
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
  if (!(path in found) && Object.keys(found).length < MOST_FIELDS) found[path] = value;
}

/** @param {any} value @param {string} path @param {number} depth @param {Record<string, string>} found */
function flatten(value, path, depth, found) {
  if (value === null || typeof value !== "object") add(found, path || "/", String(value));
  else if (/** @type {any} */ (JSON).isRawJSON?.(value)) add(found, path || "/", value.rawJSON);
  else if (Array.isArray(value) || depth === DEEPEST) add(found, path || "/", JSON.stringify(value));
  else for (const name of Object.keys(value)) flatten(value[name], `${path}/${name}`, depth + 1, found);
}

/** The fields of fix and nvfix. @param {string} text @returns {[string, string][]} */
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
 * A body that is text, in a form that people can read.
 * @param {string} type
 * @param {string} text
 */
export function readable(type, text) {
  const { form, value } = recognized(type, text);
  if (form === "json") return JSON.stringify(value, null, 2);
  if (form === "fields") return pairs(text).map(([name, field]) => `${name} = ${field}`).join("\n");
  return form === "xml" ? xmlIndented(text) : text;
}

/** Bytes as in a dump: where, which, and those that are letters. @param {Uint8Array} body */
export function hex(body) {
  const lines = [];
  for (let at = 0; at < body.length; at += ROW) {
    const row = [...body.subarray(at, at + ROW)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(3 * ROW - 1)}  ${letters}`);
  }
  return lines.join("\n");
}
