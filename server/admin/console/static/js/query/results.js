// The rows of a query or a replay, their exports, and the selected row in full.

import { html, useMemo, useRef, useState } from "../html.js";
import { bytes, count, visible } from "../format.js";
import { Found, Search } from "../parts.js";
import { change, href } from "../route.js";
import { arrange } from "../tables/arrange.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";
import { csv, download, json } from "./exports.js";
import { Inspector } from "./inspector.js";
import { MAX_BYTES, MAX_ROWS } from "./records.js";

/** @typedef {import("../tables/arrange.js").Column} Column */
/** @typedef {import("./records.js").Row} Row */

const FIRST_FIELDS = 8;
const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** @type {Column[]} */
const FIXED = [
  { key: "id", label: "#", kind: "count", width: 4, about: "order of arrival" },
  { key: "topic", label: "Topic", width: 10 },
];
/** @type {Column} */
const TIME = { key: "ts", label: "Time", kind: "instant", width: 11, of: (row) => row.header.ts ?? "" };

/**
 * @param {{
 *   page: string,
 *   run: import("./run.js").Run,
 *   params: Record<string, string>,
 *   what: string,
 *   descending?: boolean,
 *   isPaused: boolean,
 * }} props `isPaused` freezes the displayed rows
 */
export function Results({ page, run, params, what, descending = false, isPaused }) {
  const { records } = run;
  const { wanted, props } = useTableState(params, { sort: "id", descending });
  const displayed = useRef({ version: 0, rows: /** @type {Row[]} */ ([]) });
  if (!isPaused && displayed.current.version !== records.version) displayed.current = { version: records.version, rows: records.list() };
  const { rows, version } = displayed.current;
  const columns = useColumns(records, params, rows);
  const shown = usePageTable(rows, columns, wanted, String(version));
  const last = useRef(/** @type {Row | null} */ (null));
  const found = rows.find((row) => row.id === params.id);
  if (found || last.current?.id !== params.id) last.current = found ?? null;
  const chosen = last.current;
  const cellClass = (/** @type {string} */ id, /** @type {Column} */ column) => {
    const row = records.byId.get(id);
    if (!row?.before) return row?.isRemoved ? "leaving" : "";
    return column.of && row.before[column.key] !== row.fields[column.key] ? "changed" : "";
  };
  const save = (/** @type {"csv" | "json"} */ kind) => {
    const all = arrange(rows, columns, wanted);
    if (kind === "csv") download(`${page}.csv`, "text/csv", csv(all, columns));
    else download(`${page}.json`, "application/json", json(all));
  };
  return html`
    <div class="tools results-tools">
      <${Search} label="Find rows" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Columns} paths=${[...records.paths]} params=${params} />
      <button class="outlined" disabled=${!rows.length} onClick=${() => save("csv")}>CSV</button>
      <button class="outlined" disabled=${!rows.length} onClick=${() => save("json")}>JSON</button>
      <${Found} found=${shown.found} total=${shown.total} what=${what} />
    </div>
    ${records.dropped > 0 && html`<p class="notice" role="status">${limit(records, what)}</p>`}
    <div class=${chosen ? "with-beside" : ""}>
      <${Table} ...${props} label=${what} columns=${columns} shown=${shown} cellClass=${cellClass} empty=${emptiness(run, wanted.find, what)} />
      ${chosen && html`<${Inspector} key=${chosen.id} row=${chosen} back=${href(page, { ...params, id: "" })} />`}
    </div>
  `;
}

/** @param {import("./records.js").Records} records @param {string} what */
function limit(records, what) {
  const most = `This page keeps at most ${count(MAX_ROWS)} ${what} and ${bytes(MAX_BYTES)}; ${count(records.dropped)}`;
  return records.areMessages
    ? `${most} older ones were dropped.`
    : `${most} more were dropped. Use a filter or a smaller number.`;
}

/** @param {import("./run.js").Run} run @param {string} find @param {string} what */
function emptiness(run, find, what) {
  if (find) return `No ${what} match.`;
  if (run.phase === "done") return `There are no such ${what}.`;
  return run.phase === "live" ? `There are no such ${what} yet; they appear when they arrive.` : `No ${what}.`;
}

/**
 * @param {import("./records.js").Records} records
 * @param {Record<string, string>} params
 * @param {Row[]} rows
 * @returns {Column[]}
 */
function useColumns(records, params, rows) {
  const paths = chosenPaths(params, [...records.paths]);
  const hasTimes = rows.length > 0 && rows[0].header.ts !== undefined;
  const hasSeveralTopics = new Set(rows.slice(0, 100).map((row) => row.topic)).size > 1;
  const numeric = paths.map((path) => rows.length > 0 && rows.slice(0, 20).every((row) => NUMBER.test(row.fields[path] ?? "0")));
  const known = JSON.stringify([paths, hasTimes, hasSeveralTopics, numeric]);
  return useMemo(
    () => [
      FIXED[0],
      ...(hasTimes ? [TIME] : []),
      ...(hasSeveralTopics ? [FIXED[1]] : []),
      ...paths.map((path, at) => ({
        key: path,
        label: visible(path),
        width: numeric[at] ? 7 : 12,
        kind: /** @type {"number" | "text"} */ (numeric[at] ? "number" : "text"),
        of: (/** @type {Row} */ row) => row.fields[path] ?? "",
      })),
    ],
    [known],
  );
}

/** @param {Record<string, string>} params @param {string[]} paths */
function chosenPaths(params, paths) {
  return params.columns ? params.columns.split(",").map(decoded) : paths.slice(0, FIRST_FIELDS);
}

/** Decode the commas of a path. @param {string} path */
function decoded(path) {
  return path.replaceAll("%2C", ",");
}

/** Selects the fields that are columns. @param {{ paths: string[], params: Record<string, string> }} props */
function Columns({ paths, params }) {
  const [isOpen, setOpen] = useState(false);
  const chosen = chosenPaths(params, paths);
  const toggle = (/** @type {string} */ path) => {
    const kept = chosen.includes(path) ? chosen.filter((one) => one !== path) : [...chosen, path];
    change({ columns: kept.map((one) => one.replaceAll(",", "%2C")).join(",") });
  };
  return html`
    <details class="columns" open=${isOpen} onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && setOpen(false)} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
      <summary class="button outlined">Columns</summary>
      <fieldset>
        <legend class="unseen">Fields that are columns</legend>
        ${!paths.length && html`<p class="hint">Fields are known when records have arrived.</p>`}
        ${[...new Set([...paths, ...chosen])].map((path) => html`
          <label><input type="checkbox" checked=${chosen.includes(path)} onChange=${() => toggle(path)} /> ${visible(path)}</label>
        `)}
        ${params.columns && html`<button class="outlined" onClick=${() => change({ columns: null })}>Reset</button>`}
      </fieldset>
    </details>
  `;
}
