// Shows one message in full: its header, and its body in a readable form.

import { html, useMemo, useState } from "../html.js";
import { detectFormat, formatted, hexDump, textOf } from "../amps/bodies.js";
import { bytes, visible } from "../format.js";
import { Aside } from "../parts.js";
import { download } from "./exports.js";

const MAX_FORMATTED_BYTES = 1024 * 1024;
const MAX_SHOWN_BYTES = 64 * 1024;
const MAX_HEX_BYTES = 16 * 1024;

const NAMES = {
  t: "topic", k: "SOW key", bm: "bookmark", ts: "timestamp", l: "length", e: "expiration", x: "correlation id",
  lp: "lease period", user_id: "user", sids: "subscriptions", sub_id: "subscription", query_id: "query", c: "command", bs: "batch size",
};

/** @param {{ row: import("./records.js").Row, back: string }} props */
export function Inspector({ row, back }) {
  const title = row.header.k ? `Record ${row.header.k}` : `Message ${row.id}`;
  return html`
    <${Aside} title=${title} back=${back}>
      <table class="values">
        <tbody>
          ${Object.entries(row.header).map(([key, value]) => html`
            <tr>
              <th scope="row">${NAMES[/** @type {keyof typeof NAMES} */ (key)] ?? key}</th>
              <td>${visible(String(value))}</td>
            </tr>
          `)}
        </tbody>
      </table>
      <${Body} row=${row} />
    </${Aside}>
  `;
}

/** @param {{ row: import("./records.js").Row }} props */
function Body({ row }) {
  const [form, setForm] = useState("readable");
  const { text, cut } = useMemo(() => display(row, form), [row.body, row.type, form]);
  const save = () => download(`message-${row.id}`, "application/octet-stream", row.body);
  return html`
    <div class="body-head">
      <h3>Body, ${bytes(row.body.length)}</h3>
      <label>
        <span class="unseen">Shown as</span>
        <select value=${form} onChange=${(/** @type {any} */ event) => setForm(event.currentTarget.value)}>
          <option value="readable">Readable</option>
          <option value="text">Text</option>
          <option value="hex">Bytes</option>
        </select>
      </label>
      <button class="outlined" onClick=${save}>Download</button>
    </div>
    ${cut > 0 && html`<p class="hint">The first ${bytes(cut)} of ${bytes(row.body.length)} are shown. The download is complete.</p>`}
    <pre class="body" tabindex="0" aria-label="Body">${text}</pre>
  `;
}

/**
 * @param {import("./records.js").Row} row @param {string} form
 * @returns {{ text: string, cut: number }} `cut` is the shown size of a truncated body, else 0
 */
function display({ type, body }, form) {
  if (!body.length) return { text: "(empty)", cut: 0 };
  const text = textOf(body);
  const isSmall = body.length <= MAX_FORMATTED_BYTES;
  const isBytes = text === null || (isSmall && detectFormat(type, text).form === "bytes");
  if (form === "hex" || (form === "readable" && isBytes)) {
    return { text: hexDump(body.subarray(0, MAX_HEX_BYTES)), cut: body.length > MAX_HEX_BYTES ? MAX_HEX_BYTES : 0 };
  }
  const whole = text ?? new TextDecoder().decode(body);
  const formed = form === "readable" && isSmall ? formatted(type, whole) : whole;
  return { text: visible(formed.slice(0, MAX_SHOWN_BYTES)), cut: formed.length > MAX_SHOWN_BYTES ? MAX_SHOWN_BYTES : 0 };
}
