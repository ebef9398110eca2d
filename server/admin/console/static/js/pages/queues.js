// Queues: state, depth, rates, consumers, leases, and the messages of one.

import { html, useEffect, useMemo, useState } from "../html.js";
import { FieldChart, RangeChoice } from "../charts.js";
import { formatted } from "../amps/bodies.js";
import { brief, bytes, count, duration, visible } from "../format.js";
import { useLive } from "../live.js";
import { entries, Panels } from "../panels.js";
import { Aside, Found, PageHead, Search, Values } from "../parts.js";
import { change, href } from "../route.js";
import { readJson } from "../request.js";
import { useRefusal } from "../session.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";
import { OperationButton, operationsAt } from "../operation.js";

const PLACE = "amps/instance/queues";
const MAX_BODY_BYTES = 4_096;
const MAX_SUMMARY = 80;

/** The first messages are requested once in this time: the server may have to read them from disk. */
const MESSAGES_INTERVAL_MS = 10_000;

/** Seconds after which the oldest message is late, as among the findings of the overview. */
const LATE_S = 60;

/** Return the state of a queue in a word. @param {any} entry */
function stateOf(entry) {
  if (!Number(entry.queue_depth)) return "empty";
  if (!Number(entry.consumers)) return "no consumers";
  if (Number(entry.seconds_behind) > LATE_S) return "late";
  return Number(entry.backlog) ? "delivering" : "waiting";
}

/** @type {Record<string, boolean | "bad">} */
const MARKS = { "no consumers": "bad", late: "bad", waiting: true };

/** @type {import("../tables/arrange.js").Column[]} */
const COLUMNS = [
  { key: "topic", label: "Queue", width: 14 },
  { key: "message_type", label: "Type", width: 5 },
  { key: "state", label: "State", width: 9, of: stateOf, about: "late: the oldest message has waited for more than a minute; waiting: no consumer has room or matches" },
  { key: "queue_depth", label: "Depth", kind: "count", width: 6, about: "unacknowledged messages" },
  { key: "enqueued_per_sec", label: "Enqueued/s", kind: "rate", width: 8 },
  { key: "acknowledged_per_sec", label: "Acked/s", kind: "rate", width: 6 },
  { key: "consumers", label: "Consumers", kind: "count", width: 8 },
  { key: "backlog", label: "Leased", kind: "count", width: 6, about: "messages leased to consumers" },
  { key: "seconds_behind", label: "Oldest", kind: "seconds", width: 7, about: "age of the oldest message" },
  { key: "age_of_oldest_lease", label: "Oldest lease", kind: "seconds", width: 8 },
  { key: "expired_leases", label: "Expired", kind: "count", width: 6, about: "leases that have expired" },
  { key: "inactive_message_count", label: "Inactive", kind: "count", width: 6, about: "messages beyond the queue's depth" },
  { key: "owned", label: "Owned", kind: "count", width: 6, about: "messages that this instance owns" },
  { key: "transferred_in", label: "Received", kind: "count", width: 7, about: "from other instances" },
  { key: "transferred_out", label: "Passed on", kind: "count", width: 7, about: "to other instances" },
];

const STATE = COLUMNS.findIndex((column) => column.key === "state");

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, status } = useLive("/amps/instance", "queues");
  const { wanted, props } = useTableState(params, { sort: "queue_depth", descending: true });
  const rows = useMemo(() => tree.entries(PLACE), [tree.moment]);
  const shown = usePageTable(rows, COLUMNS, wanted, tree.moment);
  const refusal = useRefusal(`/${PLACE}`, session, status);
  const entry = shown.selected;
  return html`
    <${PageHead} title="Queues">
      <${Search} label="Find queues" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what="queues" refusal=${refusal} />
      ${!entry && rows.length > 0 && html`<${RangeChoice} />`}
    </${PageHead}>
    <div class=${entry ? "with-beside" : ""}>
      <${Table} ...${props} label="Queues" columns=${COLUMNS} shown=${shown} isMarked=${(/** @type {any[]} */ cells) => MARKS[cells[STATE]] ?? false} empty=${refusal || (wanted.find ? "No queue matches." : "The configuration has no queues.")} />
      ${entry && html`<${Queue} key=${entry.id} entry=${entry} tree=${tree} back=${href("queues", { ...params, id: "" })} session=${session} />`}
    </div>
    ${!entry && html`<${Panels} panels=${PANELS} tree=${tree} />`}
  `;
}

/** Queues whose values are added up in plots: each needs a request of its own. */
const MAX_ADDED_UP = 20;

/** @param {import("../tree.js").Tree} tree */
const canAddUp = (tree) => {
  const queues = tree.entries(PLACE).length;
  return queues > 0 && queues <= MAX_ADDED_UP;
};

/** @type {import("../panels.js").Panel[]} */
const PANELS = [
  { title: "Messages in all queues", format: brief, isAvailable: canAddUp, lines: [entries("depth", PLACE, "queue_depth"), entries("leased", PLACE, "backlog")] },
  { title: "Messages per second", format: brief, isAvailable: canAddUp, lines: [entries("enqueued", PLACE, "enqueued_per_sec"), entries("acknowledged", PLACE, "acknowledged_per_sec")] },
  { title: "Oldest message", format: duration, isAvailable: canAddUp, lines: [entries("of all queues", PLACE, "seconds_behind", "max")] },
];

/** @param {{ entry: any, tree: import("../tree.js").Tree, back: string, session: import("../session.js").Session }} props */
function Queue({ entry, tree, back, session }) {
  const name = encodeURIComponent(entry.id);
  const operations = operationsAt("queues", entry.id, entry).filter((operation) => !operation.unless);
  return html`
    <${Aside} title=${visible(entry.topic)} back=${back}>
      <p class="buttons left">${operations.map((operation) => html`<${OperationButton} operation=${operation} session=${session} name=${entry.topic} />`)}</p>
      <${FieldChart} title="Messages" label=${`Messages in ${entry.id}`} path=${[...PLACE.split("/"), entry.id]} fields=${FIELDS} tree=${tree} />
      <${FieldChart} title="Messages per second" label=${`Messages of ${entry.id} per second`} path=${[...PLACE.split("/"), entry.id]} fields=${RATES} tree=${tree} hasRange=${false} />
      <${Details} id=${entry.id} type=${entry.message_type} moment=${tree.moment} />
      <${Values} path=${`/${PLACE}/${name}`} entry=${entry} />
    </${Aside}>
  `;
}

const FIELDS = { depth: "queue_depth", leased: "backlog" };
const RATES = { enqueued: "enqueued_per_sec", acknowledged: "acknowledged_per_sec" };

/** Shows the consumers and the first messages of a queue. @param {{ id: string, type: string, moment: string }} props */
function Details({ id, type, moment }) {
  const [details, setDetails] = useState(/** @type {any} */ (null));
  const [messages, setMessages] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState("");
  const path = `/${PLACE}/${encodeURIComponent(id)}`;
  const period = Math.floor(Date.now() / MESSAGES_INTERVAL_MS);
  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    readJson(`${path}/details.json`, { signal }).then(setDetails, () => !signal.aborted && setDetails(null));
    return () => controller.abort();
  }, [path, moment]);
  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    readJson(`${path}/messages.json`, { signal }).then(
      (found) => {
        setMessages(found.messages);
        setProblem("");
      },
      (error) => !signal.aborted && setProblem(error.message),
    );
    return () => controller.abort();
  }, [path, period]);
  if (!details) return null;
  const consumers = (details.cursors ?? []).flatMap((/** @type {any} */ cursor) => cursor.cursor_subscriptions);
  const rest = Number(details.depth) - messages.length;
  return html`
    <section>
      <h3>Consumers</h3>
      ${consumers.length ? html`<${Rows} rows=${consumers} />` : html`<p class="hint">It has no consumers.</p>`}
    </section>
    <section>
      <h3>First messages</h3>
      ${problem && html`<p class="hint">${problem}</p>`}
      ${!problem && !messages.length && html`<p class="hint">It is empty.</p>`}
      ${messages.map((one) => html`<${Message} key=${one.bookmark} message=${one} type=${type} />`)}
      ${(problem || rest > 0) && html`<p><a href=${`${path}/details`}>${problem ? "Messages without bodies" : `${count(rest)} more, without bodies`}</a></p>`}
    </section>
  `;
}

/** @param {{ message: any, type: string }} props */
function Message({ message, type }) {
  const { bookmark, state, age, deliveries, leased_to, correlation_id = "", size = 0, body = "(not read: the messages before it are large)" } = message;
  const isWhole = Number(size) <= MAX_BODY_BYTES;
  return html`
    <details class="message">
      <summary>
        <code>${visible(isWhole ? body.slice(0, MAX_SUMMARY) : `${bytes(size)}: ${body.slice(0, MAX_SUMMARY)}`) || "(empty)"}</code>
        <span class="hint">${leased_to ? `leased to ${visible(leased_to)}` : state}, ${duration(age)}</span>
      </summary>
      <p class="hint">${visible(bookmark)}, delivered ${count(deliveries)}\u00d7${correlation_id && `, ${visible(correlation_id)}`}</p>
      <pre class="body" tabindex="0" aria-label="Body">${visible(isWhole && message.is_omitted === "0" ? formatted(type, body) : body)}</pre>
      ${!isWhole && html`<p class="hint">The first ${bytes(MAX_BODY_BYTES)} of ${bytes(size)}.</p>`}
    </details>
  `;
}

/** Shows objects as a table, with the fields of the first ones. @param {{ rows: Record<string, any>[] }} props */
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
