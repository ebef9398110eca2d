// The rows of a statement: as a grid, one of them as a whole, and to take away.

import { html, useMemo } from "../html.js";
import { bytes, count, visible } from "../format.js";
import { Aside, Found, Search } from "../parts.js";
import { download } from "../query/exports.js";
import { MAX_BYTES, MAX_ROWS } from "../query/records.js";
import { change, href } from "../route.js";
import { arrange } from "../tables/arrange.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";
import { csv, json } from "./exports.js";
import { STEP } from "./run.js";

/** @typedef {import("../tables/arrange.js").Column} Column */
/** @typedef {import("./run.js").ResultRow} ResultRow */

const NULL = "NULL";
const NUMERIC = /^(smallint|integer|bigint|real|double precision|numeric)$/;
const MAX_INLINE = 100;

/** @type {Column} */
const NUMBER = { key: "id", label: "#", kind: "count", width: 4, about: "in the order in which they came" };

/** @param {{ run: import("./run.js").StatementRun, params: Record<string, string> }} props */
export function Results({ run, params }) {
  if (run.columns.length === 1 && run.columns[0].name === "QUERY PLAN") return html`<${Plan} run=${run} />`;
  return html`<${Grid} run=${run} params=${params} />`;
}

/** What EXPLAIN says. @param {{ run: import("./run.js").StatementRun }} props */
function Plan({ run }) {
  const text = run.rows.map((row) => row.values[0]).join("\n");
  return html`<pre class="body" tabindex="0" aria-label="Plan of the statement">${visible(text)}</pre>`;
}

/** @param {{ run: import("./run.js").StatementRun, params: Record<string, string> }} props */
function Grid({ run, params }) {
  const { wanted, props } = useTableState(params, { sort: "id", descending: run.isLive });
  const columns = useColumns(run);
  const shown = usePageTable(run.rows, columns, wanted, String(run.version));
  const chosen = params.id ? run.rows.find((row) => row.id === params.id) : undefined;
  const diff = run.isLive ? run.columns.findIndex((column) => column.name === "_diff") : -1;
  const byId = useMemo(() => new Map(run.rows.map((row) => [row.id, row])), [run, run.version]);
  const cellClass = (/** @type {string} */ id, /** @type {Column} */ column) => {
    const row = byId.get(id);
    if (!row || column === NUMBER) return "";
    if (row.values[Number(column.key)] === null) return "null";
    return diff >= 0 && row.values[diff] === "-1" ? "leaving" : "";
  };
  const save = (/** @type {"csv" | "json"} */ kind) => {
    const rows = arrange(run.rows, columns, wanted);
    if (kind === "csv") download("sql.csv", "text/csv", csv(rows, run.columns));
    else download("sql.json", "application/json", json(rows, run.columns));
  };
  return html`
    <div class="tools results-tools">
      <${Search} label="Find rows" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <button class="outlined" disabled=${!run.rows.length} onClick=${() => save("csv")}>CSV</button>
      <button class="outlined" disabled=${!run.rows.length} onClick=${() => save("json")}>JSON</button>
      ${run.hasMore && html`<button class="outlined" onClick=${() => run.more()}>${`${count(STEP)} more`}</button>`}
      <${Found} found=${shown.found} total=${shown.total} what="rows" />
      ${run.phase === "waiting" && html`<span class="found">there are more</span>`}
    </div>
    <${Limits} run=${run} />
    <div class=${chosen ? "with-beside" : ""}>
      <${Table} ...${props} label="rows" columns=${columns} shown=${shown} cellClass=${cellClass} empty=${wanted.find ? "None of the rows is like this." : "No rows."} />
      ${chosen && html`<${RowShown} row=${chosen} columns=${run.columns} back=${href("sql", { ...params, id: "" })} />`}
    </div>
  `;
}

/** What is not here, and why. @param {{ run: import("./run.js").StatementRun }} props */
function Limits({ run }) {
  const most = `This page keeps ${count(MAX_ROWS)} rows and ${bytes(MAX_BYTES)} at most`;
  if (run.lost) return html`<p class="notice" role="status">${most}; ${count(run.lost)} older ones are not here any more.</p>`;
  if (run.phase === "waiting" && !run.hasMore) return html`<p class="notice" role="status">${most}. A condition makes it fewer.</p>`;
  return null;
}

/** @param {import("./run.js").StatementRun} run @returns {Column[]} */
function useColumns(run) {
  return useMemo(
    () => [
      NUMBER,
      ...run.columns.map(({ name, type }, at) => {
        const isNumber = NUMERIC.test(type);
        return {
          key: String(at),
          label: visible(name),
          note: type,
          about: `${name}: ${type}`,
          width: isNumber ? 8 : 13,
          kind: /** @type {"number" | "text"} */ (isNumber ? "number" : "text"),
          of: (/** @type {ResultRow} */ row) => row.values[at] ?? NULL,
        };
      }),
    ],
    [run.columns],
  );
}

/** One row as a whole. @param {{ row: ResultRow, columns: import("./run.js").ResultColumn[], back: string }} props */
function RowShown({ row, columns, back }) {
  return html`
    <${Aside} title=${`Row ${row.id}`} back=${back}>
      <table class="values">
        <tbody>
          ${columns.map(({ name, type }, at) => html`
            <tr>
              <th scope="row" title=${type}>${visible(name)}</th>
              <td class=${row.values[at] === null ? "null" : ""}><${Value} type=${type} value=${row.values[at]} /></td>
            </tr>
          `)}
        </tbody>
      </table>
    </${Aside}>
  `;
}

/** @param {{ type: string, value: string | null }} props */
function Value({ type, value }) {
  if (value === null) return NULL;
  const text = type === "jsonb" ? indented(value) : value;
  if (text.length <= MAX_INLINE && !text.includes("\n")) return visible(text);
  return html`<pre class="body">${visible(text)}</pre>`;
}

/** @param {string} text */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
