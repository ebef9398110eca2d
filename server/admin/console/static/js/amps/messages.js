// The wire format of the websocket: header and body in one message, as in {"c":"p","t":"orders"}{"id":1}.
//
// Bodies are always bytes; bodies.js interprets them.

/**
 * @typedef {Record<string, any>} Header
 *
 * @typedef {object} Message
 * @property {Header} header
 * @property {Uint8Array} body
 */

const [OPEN, CLOSE, QUOTE, BACKSLASH] = [..."{}\"\\"].map((sign) => sign.charCodeAt(0));
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * Encode a command. The server ends the header at the first closing brace, so braces within it are escaped.
 * @param {Header} header undefined and empty values are omitted
 */
export function encode(header) {
  const kept = Object.entries(header).filter(([, value]) => value !== undefined && value !== "");
  return `${JSON.stringify(Object.fromEntries(kept)).slice(0, -1).replaceAll("}", "\\u007d")}}`;
}

/**
 * Decode a message of the server; each record of a batch becomes a message.
 * @param {string | ArrayBuffer} data
 * @returns {Message[]}
 * @throws {SyntaxError} if it is malformed
 */
export function decode(data) {
  const bytes = typeof data === "string" ? encoder.encode(data) : new Uint8Array(data);
  const { header, end } = headerAt(bytes, 0);
  if (header.c !== "sow") return [{ header, body: bytes.subarray(end) }];
  const records = [];
  for (let at = end; at < bytes.length; ) {
    const record = headerAt(bytes, at);
    at = record.end + Number(record.header.l);
    // a copy, because a slice would keep the whole batch in memory
    records.push({ header: { ...header, ...record.header }, body: bytes.slice(record.end, at) });
  }
  return records;
}

/** @param {Uint8Array} bytes @param {number} start */
function headerAt(bytes, start) {
  if (bytes[start] !== OPEN) throw new SyntaxError("a message of the server does not begin with a header");
  let isQuoted = false;
  let at = start + 1;
  for (; at < bytes.length && (isQuoted || bytes[at] !== CLOSE); at += 1) {
    if (bytes[at] === QUOTE) isQuoted = !isQuoted;
    else if (bytes[at] === BACKSLASH) at += 1;
  }
  return { header: JSON.parse(decoder.decode(bytes.subarray(start, at + 1))), end: at + 1 };
}
