// Queues: how much waits, who has it, how old the oldest of it is, what comes back.

import { html, useEffect, useMemo, useState } from "../html.js";
import { Chart, Legend } from "../charts.js";
import { brief, count, duration, visible } from "../format.js";
import { useLastHour } from "../history.js";
import { useLive } from "../live.js";
import { Aside, Found, PageHead, Search, Values } from "../parts.js";
import { change, href } from "../route.js";
import { readJson } from "../request.js";
import { useRefusal } from "../session.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";
import { DeedButton } from "../deed.js";

const PLACE = "amps/instance/queues";

/** @type {import("../tables/arrange.js").Column[]} */
const COLUMNS = [
  { key: "topic", label: "Queue", width: 16 },
  { key: "message_type", label: "Type", width: 6 },
  { key: "queue_depth", label: "Depth", kind: "count", width: 7, about: "messages that have not been acknowledged" },
  { key: "backlog", label: "Leased", kind: "count", width: 6, about: "messages that consumers have" },
  { key: "seconds_behind", label: "Oldest", kind: "seconds", width: 7, about: "age of the oldest message" },
  { key: "age_of_oldest_lease", label: "Oldest lease", kind: "seconds", width: 8 },
  { key: "expired_leases", label: "Expired", kind: "count", width: 6, about: "leases that have ended by themselves" },
  { key: "inactive_message_count", label: "Inactive", kind: "count", width: 6, about: "messages beyond the queue's depth" },
  { key: "owned", label: "Owned", kind: "count", width: 6, about: "messages that this instance owns" },
  { key: "transferred_in", label: "Taken over", kind: "count", width: 7, about: "from other instances" },
  { key: "transferred_out", label: "Handed on", kind: "count", width: 7, about: "to other instances" },
];

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, standing } = useLive("/amps/instance", "queues");
  const { wanted, props } = useTableState(params, { sort: "queue_depth", descending: true });
  const entries = useMemo(() => tree.entries(PLACE), [tree.moment]);
  const shown = usePageTable(entries, COLUMNS, wanted, tree.moment);
  const refusal = useRefusal(`/${PLACE}`, session, standing);
  const entry = shown.selected;
  return html`
    <${PageHead} title="Queues">
      <${Search} label="Find queues" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what="queues" refusal=${refusal} />
    </${PageHead}>
    <div class=${entry ? "with-beside" : ""}>
      <${Table} ...${props} label="Queues" columns=${COLUMNS} shown=${shown} empty=${refusal || (wanted.find ? "No queue is like this." : "The configuration has no queues.")} />
      ${entry && html`<${Queue} key=${entry.id} entry=${entry} tree=${tree} back=${href("queues", { ...params, id: "" })} session=${session} />`}
    </div>
  `;
}

/** @param {{ entry: any, tree: import("../tree.js").Tree, back: string, session: import("../session.js").Session }} props */
function Queue({ entry, tree, back, session }) {
  const name = encodeURIComponent(entry.id);
  const claims = Number(entry.proxied_transfer) > 0;
  const deed = {
    path: `/amps/administrator/queues/${name}/${claims ? "disable" : "enable"}_proxied_transfer`,
    label: `${claims ? "Disable" : "Enable"} proxied transfer`,
    title: `${claims ? "Disable" : "Enable"} proxied transfer of ${visible(entry.topic)}?`,
    text: claims
      ? "The queue leaves messages to the instances that own them."
      : "The queue claims messages of instances that cannot be reached. Should such an instance go on, messages may be delivered twice.",
    isGrave: !claims,
  };
  return html`
    <${Aside} title=${visible(entry.topic)} back=${back}>
      <p class="buttons left"><${DeedButton} deed=${deed} session=${session} name=${entry.topic} /></p>
      <${Waiting} id=${entry.id} tree=${tree} />
      <${Details} id=${entry.id} moment=${tree.moment} />
      <${Values} path=${`/${PLACE}/${name}`} entry=${entry} />
    </${Aside}>
  `;
}

const FIELDS = { depth: "queue_depth", leased: "backlog" };

/** How much has waited within the last hour. @param {{ id: string, tree: import("../tree.js").Tree }} props */
function Waiting({ id, tree }) {
  const lines = useMemo(
    () =>
      Object.entries(FIELDS).map(([label, field]) => ({
        label,
        leaves: () => [`/${PLACE}/${encodeURIComponent(id)}/${field}`],
        now: (/** @type {import("../tree.js").Tree} */ at) => Number(at.at(["amps", "instance", "queues", id, field]) ?? 0),
      })),
    [id],
  );
  const points = useLastHour(tree, lines);
  return html`
    <section>
      <h3>Messages</h3>
      <${Legend} lines=${lines} tree=${tree} format=${brief} />
      <${Chart} points=${points} labels=${Object.keys(FIELDS)} format=${brief} label=${`Messages in ${id}`} />
    </section>
  `;
}

const MOST_SHOWN = 20;

/** What the queue is like right now: its consumers and its first messages. @param {{ id: string, moment: string }} props */
function Details({ id, moment }) {
  const [details, setDetails] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const given = new AbortController();
    readJson(`/${PLACE}/${encodeURIComponent(id)}/details.json`).then(
      (found) => !given.signal.aborted && setDetails(found),
      () => !given.signal.aborted && setDetails(null),
    );
    return () => given.abort();
  }, [id, moment]);
  if (!details) return null;
  const consumers = (details.cursors ?? []).flatMap((/** @type {any} */ cursor) => cursor.cursor_subscriptions);
  const messages = details.messages ?? [];
  return html`
    <section>
      <h3>Consumers</h3>
      ${consumers.length ? html`<${Rows} rows=${consumers} />` : html`<p class="hint">Nobody consumes it.</p>`}
    </section>
    <section>
      <h3>First messages</h3>
      ${messages.length ? html`<${Rows} rows=${messages.slice(0, MOST_SHOWN)} />` : html`<p class="hint">It is empty.</p>`}
      ${messages.length > MOST_SHOWN && html`<p><a href=${`/${PLACE}/${encodeURIComponent(id)}/details`}>${count(messages.length)} in all</a></p>`}
    </section>
  `;
}

/** Objects as a table, with the fields that the first ones have. @param {{ rows: Record<string, any>[] }} props */
function Rows({ rows }) {
  const names = [...new Set(rows.slice(0, 5).flatMap((row) => Object.keys(row)))];
  return html`
    <div class="scrolled" tabindex="0" role="region" aria-label="Details">
      <table class="plain-rows">
        <thead><tr>${names.map((name) => html`<th scope="col">${name.replaceAll("_", " ")}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${names.map((name) => html`<td>${cell(name, row[name])}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
  `;
}

/** @param {string} name @param {any} value */
function cell(name, value) {
  if (value === undefined || value === null) return "";
  if (typeof value === "object") return visible(JSON.stringify(value));
  return /(^|_)(age|seconds|remaining)(_|$)/.test(name) && !Number.isNaN(Number(value)) ? duration(value) : visible(String(value));
}
