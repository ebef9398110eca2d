// SOW topics, views and conflated topics: records, rates of changes, memory.

import { html, useMemo } from "../html.js";
import { FieldChart } from "../charts.js";
import { visible } from "../format.js";
import { useLive } from "../live.js";
import { Aside, Found, PageHead, Search, Tabs, Values } from "../parts.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";
import { OperationButton } from "../operation.js";

/** @typedef {import("../tables/arrange.js").Column} Column */

const TOPIC = { key: "topic", label: "Topic", width: 16 };
const TYPE = { key: "message_type", label: "Type", width: 6 };

/** @type {Record<string, { label: string, place: string, parts: string, what: string, none: string, columns: Column[] }>} */
const TABS = {
  sow: {
    label: "Records",
    place: "sow",
    parts: "sow,views,conflated_topics,queues",
    what: "topics",
    none: "No topic has records.",
    columns: [
      TOPIC,
      TYPE,
      { key: "kind", label: "Kind", width: 7 },
      { key: "valid_keys", label: "Records", kind: "count", width: 7 },
      { key: "stored_bytes", label: "Stored", kind: "bytes", width: 7, about: "bytes of records" },
      { key: "memory_bytes", label: "Memory", kind: "bytes", width: 7, about: "bytes of memory of records and indexes" },
      { key: "inserts_per_sec", label: "Inserts/s", kind: "rate", width: 6.5 },
      { key: "updates_per_sec", label: "Updates/s", kind: "rate", width: 7 },
      { key: "deletes_per_sec", label: "Deletes/s", kind: "rate", width: 6.5 },
      { key: "queries_per_sec", label: "Queries/s", kind: "rate", width: 6.5 },
    ],
  },
  views: {
    label: "Views",
    place: "views",
    parts: "sow,views",
    what: "views",
    none: "No views are configured.",
    columns: [
      TOPIC,
      TYPE,
      { key: "underlying_topic", label: "Underlying topic", width: 14 },
      { key: "valid_keys", label: "Records", kind: "count", width: 7 },
      { key: "memory_bytes", label: "Memory", kind: "bytes", width: 7 },
      { key: "queue_depth", label: "Not applied", kind: "count", width: 8, about: "updates that are not applied yet" },
      { key: "conflation_ratio", label: "Conflation", width: 7, kind: "percent", about: "updates of underlying topics per update of the view", },
      { key: "grouping", label: "Grouping", width: 12 },
    ],
  },
  conflated: {
    label: "Conflated",
    place: "conflated_topics",
    parts: "sow,conflated_topics",
    what: "conflated topics",
    none: "No conflated topics are configured.",
    columns: [
      TOPIC,
      TYPE,
      { key: "underlying_topic", label: "Underlying topic", width: 14 },
      { key: "interval", label: "Interval", width: 7 },
      { key: "valid_keys", label: "Records", kind: "count", width: 7 },
      { key: "memory_bytes", label: "Memory", kind: "bytes", width: 7 },
      { key: "conflation_ratio", label: "Conflation", width: 7, about: "updates of the underlying topic per update passed on" },
      { key: "filter", label: "Filter", width: 14 },
    ],
  },
};

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const chosen = params.tab in TABS ? params.tab : "sow";
  return html`<${TopicsOf} key=${chosen} chosen=${chosen} params=${params} session=${session} />`;
}

/** @param {{ chosen: string, params: Record<string, string>, session: import("../session.js").Session }} props */
function TopicsOf({ chosen, params, session }) {
  const tab = TABS[chosen];
  const { tree, status } = useLive("/amps/instance", tab.parts);
  const { wanted, props } = useTableState(params, { sort: "topic" });
  const entries = useMemo(() => entriesOf(tree, tab.place), [tree.moment]);
  const shown = usePageTable(entries, tab.columns, wanted, tree.moment);
  const refusal = useRefusal(`/amps/instance/${tab.place}`, session, status);
  const back = href("topics", { ...params, id: "" });
  return html`
    <${PageHead} title="Topics">
      <${Tabs} path="topics" tabs=${Object.fromEntries(Object.entries(TABS).map(([name, { label }]) => [name, label]))} chosen=${chosen} />
      <${Search} label="Find topics" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what=${tab.what} refusal=${refusal} />
    </${PageHead}>
    <div class=${params.id ? "with-beside" : ""}>
      <${Table} ...${props} label=${tab.label} columns=${tab.columns} shown=${shown} empty=${refusal || (wanted.find ? "No topic matches." : tab.none)} />
      ${shown.selected &&
      html`<${Topic} key=${params.id} place=${tab.place} entry=${shown.selected} tree=${tree} back=${back} session=${session} />`}
    </div>
  `;
}

/**
 * Return the entries at a path with the statistics of their records, which views and conflated topics
 * have as well.
 * @param {import("../tree.js").Tree} tree
 * @param {string} place
 */
function entriesOf(tree, place) {
  const records = tree.at("amps/instance/sow");
  /** @param {string} id */
  const kind = (id) =>
    ["views", "conflated_topics", "queues"].find((other) => tree.at(["amps", "instance", other])?.has(id));
  const words = { views: "view", conflated_topics: "conflated", queues: "queue" };
  return tree.entries(`amps/instance/${place}`).map((entry) => ({
    ...(records instanceof Map ? records.get(entry.id) : {}),
    ...entry,
    kind: words[/** @type {keyof typeof words} */ (kind(entry.id))] ?? "topic",
  }));
}

/** @param {{ place: string, entry: any, tree: import("../tree.js").Tree, back: string, session: import("../session.js").Session }} props */
function Topic({ place, entry, tree, back, session }) {
  const path = `/amps/instance/${place}/${encodeURIComponent(entry.id)}`;
  const own = tree.at(["amps", "instance", place, entry.id]) ?? {};
  const compact = {
    path: `/amps/administrator/sow/${encodeURIComponent(entry.id)}/compact`,
    label: "Compact",
    title: `Compact ${visible(entry.topic)}?`,
    text: "The unused space of its file is released. Publishers are not blocked.",
  };
  return html`
    <${Aside} title=${visible(entry.topic)} back=${back}>
      <p class="buttons left">
        ${entry.kind !== "queue" && html`<a class="button outlined" href=${href("query", { topic: entry.topic, type: entry.message_type })}>Query</a>`}
        ${entry.kind === "topic" && html`<${OperationButton} operation=${compact} session=${session} name=${entry.topic} />`}
      </p>
      ${tree.at(["amps", "instance", "sow", entry.id]) && html`<${FieldChart} title="Changes per second" label=${`Changes of ${entry.id} per second`} path=${["amps", "instance", "sow", entry.id]} fields=${RATES} tree=${tree} />`}
      <${Values} path=${path} entry=${own} />
    </${Aside}>
  `;
}

const RATES = { inserts: "inserts_per_sec", updates: "updates_per_sec", deletes: "deletes_per_sec" };
