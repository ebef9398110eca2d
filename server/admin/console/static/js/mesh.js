// The graph of replicating instances, with the readiness of each as seen by this browser.

import { html, useEffect, useMemo, useState } from "./html.js";
import { bytes, count, duration, visible } from "./format.js";
import { layoutGraph, Picture } from "./picture.js";
import { href } from "./route.js";

/** @typedef {import("./tree.js").Entry} Instance */

const POLL_INTERVAL_MS = 10_000;
const TIMEOUT_MS = 5_000;

/** The addresses that the page's policy allows: those known when it was loaded. */
const ALLOWED_ADDRESSES = new Set(
  (/** @type {HTMLMetaElement | null} */ (document.querySelector("meta[name=mesh]"))?.content ?? "")
    .split(" ")
    .map((address) => `${address}/`),
);

/** Draws instances and links. @param {{ instances: Instance[], links: any[], moment: string }} props */
export function Mesh({ instances, links, moment }) {
  const readinessByAddress = useReadiness(instances);
  const picture = useMemo(() => {
    const nodes = instances.map((one) => ({
      id: one.id,
      title: visible(one.id),
      lines: [one.group ? `group ${visible(one.group)}` : "", reachability(one), readinessByAddress.get(consoleOf(one)) ?? ""].filter(Boolean),
      tone: Number(one.is_reachable) ? (Number(one.is_this) ? "own" : "") : "bad",
      link: Number(one.is_this) ? "" : consoleOf(one),
    }));
    const known = new Set(nodes.map((node) => node.id));
    for (const { to } of links) {
      if (known.has(to)) continue;
      known.add(to);
      nodes.push({ id: to, title: visible(to), lines: ["never connected"], tone: "missing", link: "" });
    }
    const edges = links
      .filter((link) => known.has(link.source_name))
      .map((link) => ({
        source: link.source_name,
        target: link.to,
        text: Number(link.messages_behind) ? `${count(link.messages_behind)} behind` : link.state === "replicating" ? "in step" : link.state,
        about: `${link.source_name} to ${link.to}: ${link.state}, ${bytes(link.bytes_behind)} behind, ${duration(link.seconds_behind)}`,
        tone: link.state === "replicating" ? "" : "bad",
        link: href("replication", { id: link.id }),
      }));
    return layoutGraph(nodes, edges);
  }, [moment, readinessByAddress]);
  if (picture.nodes.length < 2) return null;
  return html`<${Picture} picture=${picture} label="Instances that replicate" />`;
}

/** @param {Instance} instance */
function reachability(instance) {
  if (Number(instance.is_this)) return "this instance";
  return Number(instance.is_reachable) ? "reachable" : "unreachable";
}

/** @param {Instance} instance */
function consoleOf(instance) {
  if (!instance.admin_addr || !["http", "https"].includes(instance.admin_scheme)) return "";
  return `${instance.admin_scheme}://${instance.admin_addr}/`;
}

/**
 * Poll the readiness of other instances from this browser. Its network route may differ from that of this
 * instance.
 * @param {Instance[]} instances
 */
function useReadiness(instances) {
  const [readinessByAddress, setReadiness] = useState(/** @type {Map<string, string>} */ (new Map()));
  const addresses = instances.filter((one) => !Number(one.is_this)).map(consoleOf).filter((address) => ALLOWED_ADDRESSES.has(address));
  const reached = instances.map((one) => one.is_reachable).join("");
  useEffect(() => {
    let timer = 0;
    let isMounted = true;
    const poll = async () => {
      const found = await Promise.all(addresses.map(async (address) => /** @type {[string, string]} */ ([address, await readiness(address)])));
      if (!isMounted) return;
      setReadiness(new Map(found));
      timer = setTimeout(poll, POLL_INTERVAL_MS);
    };
    if (addresses.length) poll();
    return () => {
      isMounted = false;
      clearTimeout(timer);
    };
  }, [addresses.join(" "), reached]);
  return readinessByAddress;
}

/** @param {string} address */
async function readiness(address) {
  try {
    const response = await fetch(`${address}readyz`, { credentials: "omit", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.ok) return "ready";
    return response.status === 503 ? "not ready" : "reachable from this browser";
  } catch {
    return "unreachable from this browser";
  }
}
