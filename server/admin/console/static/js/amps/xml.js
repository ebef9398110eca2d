// Parses XML for tables and for display. The browser's parser creates documents, which is unsafe for
// foreign XML on this page; only names and texts are needed here.

const PART = /<!\[CDATA\[([^]*?)\]\]>|<!--[^]*?-->|<\?[^]*?\?>|<!(?:[^>[]|\[[^]*?\])*>|<(\/?)([^\s/>]+)((?:[^>"']|"[^"]*"|'[^']*')*)>|[^<]+|</g;
const ATTRIBUTE = /([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')/g;
const ENTITIES = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

/** @param {string} text */
function plain(text) {
  return text.replace(/&(?:#x([\da-f]+)|#(\d+)|(\w+));/gi, (whole, hexadecimal, decimal, name) => {
    if (name) return ENTITIES[/** @type {keyof typeof ENTITIES} */ (name)] ?? whole;
    const code = hexadecimal ? parseInt(hexadecimal, 16) : Number(decimal);
    return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

/**
 * Yield the texts of elements and attributes: /order/id, /order/@side.
 * @param {string} text
 * @returns {Generator<[string, string]>}
 */
export function* xmlFields(text) {
  /** @type {string[]} */
  const open = [];
  for (const [whole, data, closing, name, rest] of text.matchAll(PART)) {
    if (closing) open.pop();
    else if (name) {
      const path = `/${[...open, name].join("/")}`;
      for (const [, attribute, one, other] of rest.matchAll(ATTRIBUTE)) yield [`${path}/@${attribute}`, plain(one ?? other)];
      if (!rest.endsWith("/")) open.push(name);
    } else if (data !== undefined) yield [`/${open.join("/")}`, data];
    else if (!whole.startsWith("<") && whole.trim()) yield [`/${open.join("/")}`, plain(whole.trim())];
  }
}

/**
 * Indent XML: a line per element, except elements with text only.
 * @param {string} text
 */
export function xmlIndented(text) {
  const parts = [...text.matchAll(PART)].filter(([whole]) => whole.trim());
  /** @type {string[]} */
  const lines = [];
  let depth = 0;
  for (let at = 0; at < parts.length; at += 1) {
    const [whole, , closing, name, rest] = parts[at];
    if (closing) depth = Math.max(0, depth - 1);
    let line = whole.trim();
    const isOpening = name && !closing && !rest.endsWith("/");
    if (isOpening && parts[at + 1]?.[0][0] !== "<" && parts[at + 2]?.[2] && parts[at + 2][3] === name) {
      line += parts[at + 1][0].trim() + parts[at + 2][0];
      at += 2;
    } else if (isOpening && parts[at + 1]?.[2]) {
      line += parts[at + 1][0];
      at += 1;
    } else if (isOpening) depth += 1;
    lines.push("  ".repeat(isOpening && line === whole.trim() ? depth - 1 : depth) + line);
  }
  return lines.join("\n");
}
