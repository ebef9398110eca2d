// The transaction log: its files, the latency of writes, and operations on old files.

import { html, useMemo } from "../html.js";
import { RangeChoice } from "../charts.js";
import { clock, duration } from "../format.js";
import { useLive } from "../live.js";
import { DISK_THROUGHPUT, LOG_WRITES, Panels } from "../panels.js";
import { OperationButton } from "../operation.js";
import { Aside, Figure, Found, PageHead, Search, Values } from "../parts.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";

const LOG = "amps/instance/transaction_log";

/** @type {import("../tables/arrange.js").Column[]} */
const COLUMNS = [
  { key: "file_name", label: "File", width: 20 },
  { key: "min_timestamp", label: "Oldest entry", kind: "moment", width: 13 },
  { key: "max_timestamp", label: "Newest entry", kind: "moment", width: 13 },
  { key: "size", label: "Size", kind: "bytes", width: 7 },
  { key: "is_compressed", label: "Compressed", kind: "flag", width: 9 },
  { key: "is_archived", label: "Archived", kind: "flag", width: 7 },
  { key: "held_by", label: "Held by", width: 18, about: "the reason why it is needed" },
];

const PANELS = [LOG_WRITES, DISK_THROUGHPUT];

const OPERATIONS = {
  compress: { label: "Compress", effect: "are compressed", isDestructive: false },
  archive: { label: "Archive", effect: "are moved to the archive", isDestructive: false },
  remove: { label: "Remove", effect: "are removed; their entries cannot be replayed any more", isDestructive: true },
};

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, status } = useLive("/amps", "host/disks,instance/latencies,instance/transaction_log");
  const { wanted, props } = useTableState(params, { sort: "file_name", descending: true });
  const entries = useMemo(() => tree.entries(`${LOG}/journals`), [tree.moment]);
  const shown = usePageTable(entries, COLUMNS, wanted, tree.moment);
  const refusal = useRefusal(`/${LOG}`, session, status);
  const entry = shown.selected;
  return html`
    <${PageHead} title="Journals">
      <${Search} label="Find journals" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what="journals" refusal=${refusal} />
      ${!entry && html`<${RangeChoice} />`}
    </${PageHead}>
    <dl class="figures">
      <${Figure} label="Oldest entry" value=${clock(String(tree.at(`${LOG}/min_timestamp`) ?? ""))} />
      <${Figure} label="Newest entry" value=${clock(String(tree.at(`${LOG}/max_timestamp`) ?? ""))} />
      <${Figure} label="Longest write" value=${duration(tree.number(`${LOG}/write_latency/maximum`) / 1e6)} />
    </dl>
    <div class=${entry ? "with-beside" : ""}>
      <${Table} ...${props} label="Journals" columns=${COLUMNS} shown=${shown} empty=${refusal || (wanted.find ? "No journal matches." : "There is no transaction log.")} />
      ${entry &&
      html`
        <${Aside} title=${entry.file_name} back=${href("journals", { ...params, id: "" })}>
          <p class="buttons left">
            ${Object.entries(OPERATIONS).map(([name, operation]) => html`<${OperationButton} operation=${operationOf(name, operation, entry)} session=${session} name=${entry.file_name} />`)}
          </p>
          <${Values} path=${`/${LOG}/journals/${encodeURIComponent(entry.id)}`} entry=${entry} />
        </${Aside}>
      `}
    </div>
    ${!entry && html`<${Panels} panels=${PANELS} tree=${tree} />`}
  `;
}

/** @param {string} name @param {{ label: string, effect: string, isDestructive: boolean }} operation @param {import("../tree.js").Entry} entry */
function operationOf(name, { label, effect, isDestructive }, entry) {
  return {
    path: `/amps/administrator/transaction_log/journals/${encodeURIComponent(entry.id)}/${name}`,
    label,
    title: `${label} ${entry.file_name}?`,
    text: `It and all older journals ${effect}.`,
    isDestructive,
    unless: entry.held_by === "being written" ? "It is being written." : "",
  };
}
