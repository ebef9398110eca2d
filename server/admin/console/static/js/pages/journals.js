// The transaction log: its files, how long writes take, and what is done with old ones.

import { html, useMemo } from "../html.js";
import { clock, duration } from "../format.js";
import { useLive } from "../live.js";
import { DeedButton } from "../deed.js";
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
  { key: "held_by", label: "Held by", width: 18, about: "what still needs it" },
];

const DEEDS = {
  compress: { label: "Compress", what: "are compressed", isGrave: false },
  archive: { label: "Archive", what: "are moved to the archive", isGrave: false },
  remove: { label: "Remove", what: "are removed; what is only in them cannot be replayed any more", isGrave: true },
};

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, standing } = useLive("/amps/instance/transaction_log");
  const { wanted, props } = useTableState(params, { sort: "file_name", descending: true });
  const entries = useMemo(() => tree.entries(`${LOG}/journals`), [tree.moment]);
  const shown = usePageTable(entries, COLUMNS, wanted, tree.moment);
  const refusal = useRefusal(`/${LOG}`, session, standing);
  const entry = shown.selected;
  return html`
    <${PageHead} title="Journals">
      <${Search} label="Find journals" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what="journals" refusal=${refusal} />
    </${PageHead}>
    <dl class="figures">
      <${Figure} label="Oldest entry" value=${clock(String(tree.at(`${LOG}/min_timestamp`) ?? ""))} />
      <${Figure} label="Newest entry" value=${clock(String(tree.at(`${LOG}/max_timestamp`) ?? ""))} />
      <${Figure} label="Longest write" value=${duration(tree.number(`${LOG}/write_latency/maximum`) / 1e6)} />
    </dl>
    <div class=${entry ? "with-beside" : ""}>
      <${Table} ...${props} label="Journals" columns=${COLUMNS} shown=${shown} empty=${refusal || (wanted.find ? "No journal is like this." : "There is no transaction log.")} />
      ${entry &&
      html`
        <${Aside} title=${entry.file_name} back=${href("journals", { ...params, id: "" })}>
          <p class="buttons left">
            ${Object.entries(DEEDS).map(([name, deed]) => html`<${DeedButton} deed=${deedOf(name, deed, entry)} unless=${entry.held_by === "being written" ? "It is being written." : ""} session=${session} name=${entry.file_name} />`)}
          </p>
          <${Values} path=${`/${LOG}/journals/${encodeURIComponent(entry.id)}`} entry=${entry} />
        </${Aside}>
      `}
    </div>
  `;
}

/** @param {string} name @param {{ label: string, what: string, isGrave: boolean }} deed @param {import("../tree.js").Entry} entry */
function deedOf(name, { label, what, isGrave }, entry) {
  return {
    path: `/amps/administrator/transaction_log/journals/${encodeURIComponent(entry.id)}/${name}`,
    label,
    title: `${label} ${entry.file_name}?`,
    text: `It and all older journals ${what}.`,
    isGrave,
  };
}
