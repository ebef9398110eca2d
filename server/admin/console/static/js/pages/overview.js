// The overview of the instance: findings, key figures, and charts.

import { html } from "../html.js";
import { Chart, Legend, RangeChoice } from "../charts.js";
import { Findings } from "../findings.js";
import { brief, bytes, count, duration, percent } from "../format.js";
import { useHistory } from "../history.js";
import { useLive } from "../live.js";
import { Figure, PageHead } from "../parts.js";
import { href } from "../route.js";
import { useRefusal } from "../session.js";

const PARTS = [
  "host/disks",
  "instance/cpu",
  "instance/latencies",
  "instance/memory",
  "instance/processors",
  "instance/queues",
  "instance/replication",
  "instance/transports",
  "instance/views",
].join(",");

/** Return the line of one value. @param {string} label @param {string} path @param {number} [scale] @returns {import("../history.js").Line} */
function leaf(label, path, scale = 1) {
  return {
    label,
    scale,
    leaves: (tree) => (tree.at(path) === undefined ? [] : [`/${path}`]),
    now: (tree) => (tree.at(path) === undefined ? null : tree.number(path) * scale),
  };
}

/**
 * Return the line of a field, aggregated over all entries at a path.
 * @param {string} label
 * @param {string} path
 * @param {string} field
 * @param {"sum" | "max"} [joined]
 * @returns {import("../history.js").Line}
 */
function entries(label, path, field, joined = "sum") {
  return {
    label,
    joined,
    leaves: (tree) => tree.entries(path).map((entry) => `/${path}/${encodeURIComponent(entry.id)}/${field}`),
    now: (tree) => {
      const values = tree.entries(path).map((entry) => Number(entry[field] ?? 0));
      if (!values.length) return null;
      return joined === "sum" ? values.reduce((one, other) => one + other, 0) : Math.max(...values);
    },
  };
}

const ALL = "amps/instance/processors/all";
const MICROSECONDS = 1e-6;

/** @typedef {{ title: string, format: (value: number) => string, lines: import("../history.js").Line[], least?: number, isAvailable?: (tree: import("../tree.js").Tree) => boolean, link?: string }} Panel */

/** @type {Panel[]} */
const PANELS = [
  {
    title: "Messages per second",
    format: brief,
    lines: [leaf("in", `${ALL}/messages_received_per_sec`), leaf("out", `${ALL}/matches_found_per_sec`)],
  },
  {
    title: "Bytes per second",
    format: bytes,
    least: 1_024,
    lines: [leaf("in", `${ALL}/messages_received_bytes_per_sec`), leaf("out", `${ALL}/matches_found_bytes_per_sec`)],
  },
  {
    title: "Connections",
    format: brief,
    link: href("clients"),
    lines: [entries("clients", "amps/instance/transports", "client_count")],
  },
  {
    title: "Scheduling rounds of the engine",
    format: duration,
    least: 0.001,
    lines: [
      leaf("mean", "amps/instance/latencies/turn/mean", MICROSECONDS),
      leaf("99th percentile", "amps/instance/latencies/turn/percentile_99", MICROSECONDS),
    ],
  },
  {
    title: "Writes of the transaction log",
    format: duration,
    least: 0.001,
    link: href("journals"),
    isAvailable: (tree) => tree.at("amps/instance/latencies/log_write") !== undefined,
    lines: [
      leaf("mean", "amps/instance/latencies/log_write/mean", MICROSECONDS),
      leaf("99th percentile", "amps/instance/latencies/log_write/percentile_99", MICROSECONDS),
    ],
  },
  {
    title: "Memory",
    format: bytes,
    least: 1_048_576,
    lines: [leaf("resident", "amps/instance/memory/rss")],
  },
  {
    title: "CPU",
    format: percent,
    least: 10,
    lines: [leaf("of one core", "amps/instance/cpu/total_percent")],
  },
  {
    title: "Disks, bytes per second",
    format: bytes,
    least: 1_024,
    isAvailable: (tree) => tree.entries("amps/host/disks").length > 0,
    lines: [
      entries("written", "amps/host/disks", "write_bytes_per_sec"),
      entries("read", "amps/host/disks", "read_bytes_per_sec"),
    ],
  },
  {
    title: "Replication lag",
    format: duration,
    least: 1,
    isAvailable: (tree) => tree.entries("amps/instance/replication").length > 0,
    lines: [entries("slowest destination", "amps/instance/replication", "seconds_behind", "max")],
  },
];

/** @param {{ session: import("../session.js").Session }} props */
export function Page({ session }) {
  const { tree } = useLive("/amps", PARTS);
  const panels = PANELS.filter((panel) => !panel.isAvailable || panel.isAvailable(tree));
  return html`
    <${PageHead} title="Overview" about=${session.description}><${RangeChoice} /></${PageHead}>
    <${Findings} moment=${tree.moment} session=${session} />
    <${Figures} tree=${tree} session=${session} />
    ${tree.moment &&
    html`<div class="panels">
      ${panels.map((panel) => html`<${PanelView} key=${panel.title} panel=${panel} tree=${tree} />`)}
    </div>`}
  `;
}

/** @param {{ tree: import("../tree.js").Tree, session: import("../session.js").Session }} props */
function Figures({ tree, session }) {
  const destinations = tree.entries("amps/instance/replication");
  const connected = destinations.filter((one) => Number(one.is_connected)).length;
  const disks = tree.entries("amps/host/disks");
  const minFree = Math.min(...disks.map((disk) => Number(disk.file_system_free_percent)));
  return html`
    <dl class="figures">
      <${Sum} label="Clients" tree=${tree} place="transports" field="client_count" session=${session} link=${href("clients")} />
      <${Sum} label="Waiting in queues" tree=${tree} place="queues" field="queue_depth" session=${session} link=${href("queues")} />
      <${Sum} label="Updates pending in views" tree=${tree} place="views" field="queue_depth" session=${session} link=${href("topics", { tab: "views" })} />
      ${destinations.length > 0 &&
      html`<${Figure}
        label="Destinations connected"
        value=${`${connected} of ${destinations.length}`}
        tone=${connected < destinations.length ? "bad" : ""}
      />`}
      ${disks.length > 0 &&
      html`<${Figure} label="Minimum free disk" value=${percent(minFree)} tone=${minFree < 10 ? "bad" : ""} />`}
    </dl>
  `;
}

/**
 * Shows the sum of a field over all entries at a path; nothing if the user may not see it.
 * @param {{ label: string, tree: import("../tree.js").Tree, place: string, field: string, session: import("../session.js").Session, link: string }} props
 */
function Sum({ label, tree, place, field, session, link }) {
  const path = `amps/instance/${place}`;
  const refusal = useRefusal(`/${path}`, session);
  const value = refusal || !tree.moment ? undefined : tree.sum(path, field);
  return html`<${Figure} label=${label} value=${count(value)} link=${link} about=${refusal} />`;
}

/** @param {{ panel: Panel, tree: import("../tree.js").Tree }} props */
function PanelView({ panel, tree }) {
  const points = useHistory(tree, panel.lines);
  const labels = panel.lines.map((line) => line.label);
  return html`
    <section class="panel">
      <header>
        <h2>${panel.link ? html`<a href=${panel.link}>${panel.title}</a>` : panel.title}</h2>
        <${Legend} lines=${panel.lines} tree=${tree} format=${panel.format} />
      </header>
      <${Chart} points=${points} labels=${labels} format=${panel.format} label=${panel.title} least=${panel.least} />
    </section>
  `;
}
