// The overview of the instance: findings, key figures, and charts.

import { html } from "../html.js";
import { RangeChoice } from "../charts.js";
import { Findings } from "../findings.js";
import { brief, bytes, count, duration, percent } from "../format.js";
import { useLive } from "../live.js";
import { DISK_THROUGHPUT, entries, leaf, LOG_WRITES, MICROSECONDS, Panels, REPLICATION_LAG } from "../panels.js";
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

const ALL = "amps/instance/processors/all";

/** @type {import("../panels.js").Panel[]} */
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
    title: "Engine latency",
    format: duration,
    least: 0.001,
    lines: [
      leaf("mean", "amps/instance/latencies/turn/mean", MICROSECONDS),
      leaf("99th percentile", "amps/instance/latencies/turn/percentile_99", MICROSECONDS),
    ],
  },
  LOG_WRITES,
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
  DISK_THROUGHPUT,
  REPLICATION_LAG,
];

/** @param {{ session: import("../session.js").Session }} props */
export function Page({ session }) {
  const { tree } = useLive("/amps", PARTS);
  return html`
    <${PageHead} title="Overview" about=${session.description}><${RangeChoice} /></${PageHead}>
    <${Findings} moment=${tree.moment} session=${session} />
    <${Figures} tree=${tree} session=${session} />
    <${Panels} panels=${PANELS} tree=${tree} />
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
      <${Sum} label="Queue depth" tree=${tree} place="queues" field="queue_depth" session=${session} link=${href("queues")} />
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
