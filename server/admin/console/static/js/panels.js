// Panels with plots over the range of the page: of single values, and of sums over entries.

import { Chart, Legend } from "./charts.js";
import { brief, bytes, duration } from "./format.js";
import { useHistory } from "./history.js";
import { html } from "./html.js";
import { href } from "./route.js";

/** @typedef {{ title: string, format: (value: number) => string, lines: import("./history.js").Line[], least?: number, isAvailable?: (tree: import("./tree.js").Tree) => boolean, link?: string }} Panel */

/** Return the line of one value. @param {string} label @param {string} path @param {number} [scale] @returns {import("./history.js").Line} */
export function leaf(label, path, scale = 1) {
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
 * @returns {import("./history.js").Line}
 */
export function entries(label, path, field, joined = "sum") {
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

export const MICROSECONDS = 1e-6;

/** @type {Panel} */
export const LOG_WRITES = {
  title: "Transaction log writes",
  format: duration,
  least: 0.001,
  link: href("journals"),
  isAvailable: (tree) => tree.at("amps/instance/latencies/log_write") !== undefined,
  lines: [
    leaf("mean", "amps/instance/latencies/log_write/mean", MICROSECONDS),
    leaf("99th percentile", "amps/instance/latencies/log_write/percentile_99", MICROSECONDS),
  ],
};

/** @type {Panel} */
export const DISK_THROUGHPUT = {
  title: "Disk throughput",
  format: bytes,
  least: 1_024,
  isAvailable: (tree) => tree.entries("amps/host/disks").length > 0,
  lines: [
    entries("written", "amps/host/disks", "write_bytes_per_sec"),
    entries("read", "amps/host/disks", "read_bytes_per_sec"),
  ],
};

/** @type {Panel} */
export const REPLICATION_LAG = {
  title: "Replication lag",
  format: duration,
  least: 1,
  isAvailable: (tree) => tree.entries("amps/instance/replication").length > 0,
  lines: [entries("slowest destination", "amps/instance/replication", "seconds_behind", "max")],
};

/** @type {Panel} */
export const REPLICATED = {
  title: "Replicated per second",
  format: brief,
  isAvailable: REPLICATION_LAG.isAvailable,
  lines: [entries("messages", "amps/instance/replication", "messages_out_per_sec")],
};

/** @param {{ panels: Panel[], tree: import("./tree.js").Tree }} props */
export function Panels({ panels, tree }) {
  const shown = panels.filter((panel) => !panel.isAvailable || panel.isAvailable(tree));
  return tree.moment && html`
    <div class="panels">
      ${shown.map((panel) => html`<${PanelView} key=${panel.title} panel=${panel} tree=${tree} />`)}
    </div>
  `;
}

/** @param {{ panel: Panel, tree: import("./tree.js").Tree }} props */
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
