// The graph of the configuration: its parts and their connections, with current statistics. The same
// graph as that of `ampServer --verify-config --graph`.

import { html, useEffect, useMemo, useState } from "../html.js";
import { brief, named, visible } from "../format.js";
import { useLive } from "../live.js";
import { layoutGraph, Picture } from "../picture.js";
import { PageHead } from "../parts.js";
import { change, href } from "../route.js";
import { readJson } from "../request.js";

/** @typedef {{ kind: string, name: string, message_type: string, detail: string, location: string, is_missing: boolean }} Part */
/** @typedef {{ nodes: Part[], edges: { source: number, target: number, label: string }[] }} Graph */

/**
 * For each kind of part: its minimum layer, the path and the text of its statistics, and its page.
 * @type {Record<string, { layer: number, place?: string, describe?: (entry: any) => string, rate?: (entry: any) => number, page?: string, params?: (id: string) => Record<string, string> }>}
 */
const KINDS = {
  transport: {
    layer: 0,
    place: "transports",
    describe: (entry) => (Number(entry.is_enabled) ? `${brief(entry.client_count)} ${named(entry.client_count, "clients")}` : "disabled"),
    page: "clients",
    params: (id) => ({ find: `transport=${id.toLowerCase()}` }),
  },
  "transaction log": { layer: 1, page: "journals" },
  "SOW topic": { layer: 2, place: "sow", describe: records, rate: changes, page: "topics", params: (id) => ({ id }) },
  "conflated topic": { layer: 2, place: "sow", describe: records, rate: changes, page: "topics", params: (id) => ({ tab: "conflated", id }) },
  view: { layer: 2, place: "sow", describe: records, rate: changes, page: "topics", params: (id) => ({ tab: "views", id }) },
  queue: {
    layer: 2,
    place: "queues",
    describe: (entry) => `${brief(entry.queue_depth)} waiting, ${brief(entry.backlog)} leased`,
    page: "queues",
    params: (id) => ({ id }),
  },
  "replication destination": {
    layer: 2,
    place: "replication",
    describe: (entry) => (Number(entry.is_connected) ? `${brief(entry.messages_out_per_sec)}/s` : "not connected"),
    rate: (entry) => Number(entry.messages_out_per_sec ?? 0),
    page: "replication",
  },
  action: { layer: 1, page: "actions" },
};

/** Kinds that are derived from topics. */
const DERIVED = ["view", "conflated topic", "queue"];
/** Labels of edges that messages follow; others are relations of actions. */
const MESSAGE_EDGES = ["fed by", "kept in", "sent from"];

/** @param {{ params: Record<string, string> }} props */
export function Page({ params }) {
  const [graph, setGraph] = useState(/** @type {Graph | null} */ (null));
  const [problem, setProblem] = useState("");
  const { tree } = useLive("/amps/instance", "transports,sow,queues,replication");
  useEffect(() => {
    readJson("/console/graph.json").then(setGraph, (error) => setProblem(error.message));
  }, []);
  const withAll = params.all === "1";
  const picture = useMemo(() => graph && draw(graph, tree, withAll), [graph, tree.moment, withAll]);
  return html`
    <${PageHead} title="Configuration">
      <button class="outlined" title="log targets, modules and message types as well" aria-pressed=${withAll} onClick=${() => change({ all: withAll ? null : "1" })}>
        All parts
      </button>
      <a href="/amps/instance/config.xml">config.xml</a>
    </${PageHead}>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${picture && html`<${Picture} picture=${picture} label="Parts of the configuration" />`}
    <p class="hint">Click a part to open its page. Point at a line to read its meaning.</p>
  `;
}

/** @param {Graph} graph @param {import("../tree.js").Tree} tree @param {boolean} withAll */
function draw(graph, tree, withAll) {
  const nodes = graph.nodes
    .map((part, number) => ({ part, number }))
    .filter(({ part }) => withAll || part.kind in KINDS)
    .map(({ part, number }) => nodeOf(part, number, tree));
  // derived topics are connected with their topics only, not with the log that contains them as well
  const made = new Set(
    graph.edges
      .filter(({ source, target, label }) => label === "fed by" && source !== target && graph.nodes[source])
      .map(({ target }) => target)
      .filter((target) => DERIVED.includes(graph.nodes[target].kind)),
  );
  const shown = new Map(nodes.map((node) => [node.id, node]));
  const edges = graph.edges
    .filter(({ source, target }) => source !== target && shown.has(String(source)) && shown.has(String(target)))
    .filter(({ target, label }) => label !== "kept in" || !made.has(target))
    .map((edge) => edgeOf(edge, graph, tree));
  return layoutGraph(nodes, [...edges, ...transportEdges(graph, shown)]);
}

/** Return edges from transports to the log, which the configuration does not list. @param {Graph} graph @param {Map<string, any>} shown */
function transportEdges(graph, shown) {
  const log = graph.nodes.findIndex((part) => part.kind === "transaction log");
  if (log < 0) return [];
  return graph.nodes.flatMap((part, number) =>
    part.kind === "transport" && shown.has(String(number))
      ? [{ source: String(number), target: String(log), about: `recorded messages published over ${visible(part.name)}` }]
      : [],
  );
}

/** @param {Part} part @param {number} number @param {import("../tree.js").Tree} tree */
function nodeOf(part, number, tree) {
  const kind = KINDS[part.kind];
  const found = entryOf(part, tree);
  const detail = part.is_missing ? "not available yet" : found ? kind?.describe?.(found.entry) : part.detail;
  return {
    id: String(number),
    title: short(visible(part.name)),
    lines: [part.message_type ? `${part.kind}, ${part.message_type}` : part.kind, short(visible(detail ?? ""))].filter(Boolean),
    tone: part.is_missing ? "missing" : "",
    link: kind?.page && !part.is_missing ? href(kind.page, found && kind.params ? kind.params(found.id) : {}) : "",
    layer: kind?.layer ?? 0,
  };
}

/** Remove the common prefix of action modules. @param {string} text */
function short(text) {
  return text.replace(/amps-action-(on|do|if)-/g, "").replaceAll(" then ", ", ");
}

/** @param {{ source: number, target: number, label: string }} edge @param {Graph} graph @param {import("../tree.js").Tree} tree */
function edgeOf({ source, target, label }, graph, tree) {
  const [from, to] = [graph.nodes[source], graph.nodes[target]];
  const rate = MESSAGE_EDGES.includes(label) ? KINDS[to.kind]?.rate : undefined;
  const found = rate && entryOf(to, tree);
  const text = found && rate ? rate(found.entry) : 0;
  return {
    source: String(source),
    target: String(target),
    text: text ? `${brief(text)}/s` : "",
    about: `${to.kind} ${visible(to.name)} is ${label} ${from.kind} ${visible(from.name)}`,
  };
}

/** Return the statistics of a part. @param {Part} part @param {import("../tree.js").Tree} tree */
function entryOf(part, tree) {
  const place = KINDS[part.kind]?.place;
  if (!place) return null;
  for (const id of [part.name, `${part.name}-${part.message_type}`]) {
    const entry = tree.at(["amps", "instance", place, id]);
    if (entry && (!part.message_type || entry.message_type === part.message_type)) return { id, entry };
  }
  return null;
}

/** @param {any} entry */
function records(entry) {
  return `${brief(entry.valid_keys)} ${named(entry.valid_keys, "records")}`;
}

/** @param {any} entry */
function changes(entry) {
  return ["inserts_per_sec", "updates_per_sec", "deletes_per_sec"].reduce((sum, field) => sum + Number(entry[field] ?? 0), 0);
}
