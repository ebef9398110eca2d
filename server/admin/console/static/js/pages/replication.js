// The replicating instances and their links, as far as they are known.

import { html, useMemo } from "../html.js";
import { OperationButton, operationsAt } from "../operation.js";
import { RangeChoice } from "../charts.js";
import { visible } from "../format.js";
import { useLive } from "../live.js";
import { Mesh } from "../mesh.js";
import { Panels, REPLICATED, REPLICATION_LAG } from "../panels.js";
import { Aside, Found, PageHead, Search, Values } from "../parts.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";

const LINKS = "amps/mesh/links";

/** @type {import("../tables/arrange.js").Column[]} */
const COLUMNS = [
  { key: "source_name", label: "From", width: 9 },
  { key: "to", label: "To", width: 9 },
  { key: "state", label: "State", width: 11 },
  { key: "waiting", label: "Publishers", width: 8, about: "whether they wait for the destination" },
  { key: "messages_behind", label: "Behind", kind: "count", width: 7, about: "messages that the destination has not stored" },
  { key: "bytes_behind", label: "Bytes", kind: "bytes", width: 7 },
  { key: "seconds_behind", label: "Time", kind: "seconds", width: 6, about: "waiting time of the oldest of these" },
  { key: "messages_out_per_sec", label: "Sent/s", kind: "rate", width: 6 },
  { key: "since", label: "Since", kind: "moment", width: 7, about: "time of the last connect or disconnect" },
  { key: "waits_for", label: "Waits for", width: 16 },
];
const STATE = COLUMNS.findIndex((column) => column.key === "state");

const PANELS = [REPLICATION_LAG, REPLICATED];

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, status } = useLive("/amps/mesh");
  const { tree: instance } = useLive("/amps/instance", "replication");
  const { wanted, props } = useTableState(params, { sort: "source_name" });
  const entries = useMemo(() => tree.entries(LINKS).map(linkOf), [tree.moment]);
  const shown = usePageTable(entries, COLUMNS, wanted, tree.moment);
  const refusal = useRefusal(`/${LINKS}`, session, status);
  const entry = shown.selected;
  return html`
    <${PageHead} title="Replication">
      <${Search} label="Find links" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what="links" refusal=${refusal} />
      ${!entry && entries.length > 0 && html`<${RangeChoice} />`}
    </${PageHead}>
    <${Mesh} instances=${tree.entries("amps/mesh/instances")} links=${entries} moment=${tree.moment} />
    <div class=${entry ? "with-beside" : ""}>
      <${Table}
        ...${props}
        label="Links"
        columns=${COLUMNS}
        shown=${shown}
        isMarked=${(/** @type {any[]} */ cells) => cells[STATE] !== "replicating"}
        empty=${refusal || (wanted.find ? "No link matches." : "This instance has no replication links.")}
      />
      ${entry && html`<${Link} entry=${entry} back=${href("replication", { ...params, id: "" })} session=${session} />`}
    </div>
    ${!entry && html`<${Panels} panels=${PANELS} tree=${instance} />`}
  `;
}

/** @param {import("../tree.js").Entry} entry */
function linkOf(entry) {
  const isDowngraded = entry.sync_type === "sync" && entry.replication_type !== "sync";
  return {
    ...entry,
    to: entry.destination_name || entry.name,
    state: Number(entry.is_current) ? entry.state : `unknown (was ${entry.state})`,
    waiting: isDowngraded ? "no: downgraded" : entry.replication_type === "sync" ? "wait" : "do not wait",
  };
}

/** @param {{ entry: any, back: string, session: import("../session.js").Session }} props */
function Link({ entry, back, session }) {
  const isOurs = entry.source_name === session.name;
  return html`
    <${Aside} title=${`${visible(entry.source_name)} to ${visible(entry.to)}`} back=${back}>
      ${isOurs
        ? html`<p class="buttons left">${operationsAt("replication", entry.name, entry).map((operation) => html`<${OperationButton} operation=${operation} session=${session} name=${entry.name} />`)}</p>`
        : html`<p class="hint">Operations on this link are available at ${visible(entry.source_name)}.</p>`}
      <${Values} path=${`/${LINKS}/${encodeURIComponent(entry.id)}`} entry=${entry} leave=${["to", "waiting"]} />
    </${Aside}>
  `;
}
