// The instances that replicate to one another, as a picture, with what each of them says to this browser.

import { html, useEffect, useMemo, useState } from "./html.js";
import { bytes, count, duration, visible } from "./format.js";
import { layered, Picture } from "./picture.js";
import { href } from "./route.js";

/** @typedef {import("./tree.js").Entry} Instance */

const PAUSE = 10_000;
const PATIENCE = 5_000;

/** The page's policy lets it connect with those that were known when it was loaded. */
const MAY_ASK = new Set(
  (/** @type {HTMLMetaElement | null} */ (document.querySelector("meta[name=mesh]"))?.content ?? "")
    .split(" ")
    .map((address) => `${address}/`),
);

/** Who sends to whom, as a picture. @param {{ instances: Instance[], links: any[], moment: string }} props */
export function Mesh({ instances, links, moment }) {
  const answers = useAnswers(instances);
  const picture = useMemo(() => {
    const nodes = instances.map((one) => ({
      id: one.id,
      title: visible(one.id),
      lines: [one.group ? `group ${visible(one.group)}` : "", standing(one), answers.get(consoleOf(one)) ?? ""].filter(Boolean),
      tone: Number(one.is_reachable) ? (Number(one.is_this) ? "own" : "") : "bad",
      link: Number(one.is_this) ? "" : consoleOf(one),
    }));
    const known = new Set(nodes.map((node) => node.id));
    for (const { to } of links) {
      if (known.has(to)) continue;
      known.add(to);
      nodes.push({ id: to, title: visible(to), lines: ["never met"], tone: "missing", link: "" });
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
    return layered(nodes, edges);
  }, [moment, answers]);
  if (picture.nodes.length < 2) return null;
  return html`<${Picture} picture=${picture} label="Instances that replicate" />`;
}

/** @param {Instance} instance */
function standing(instance) {
  if (Number(instance.is_this)) return "this instance";
  return Number(instance.is_reachable) ? "reachable" : "out of reach";
}

/** @param {Instance} instance */
function consoleOf(instance) {
  if (!instance.admin_addr || !["http", "https"].includes(instance.admin_scheme)) return "";
  return `${instance.admin_scheme}://${instance.admin_addr}/`;
}

/**
 * What other instances say to this browser, by their addresses: the way to them is another one than
 * this instance has.
 * @param {Instance[]} instances
 */
function useAnswers(instances) {
  const [answers, setAnswers] = useState(/** @type {Map<string, string>} */ (new Map()));
  const asked = instances.filter((one) => !Number(one.is_this)).map(consoleOf).filter((address) => MAY_ASK.has(address));
  const reached = instances.map((one) => one.is_reachable).join("");
  useEffect(() => {
    let timer = 0;
    let isWanted = true;
    const ask = async () => {
      const found = await Promise.all(asked.map(async (address) => /** @type {[string, string]} */ ([address, await readiness(address)])));
      if (!isWanted) return;
      setAnswers(new Map(found));
      timer = setTimeout(ask, PAUSE);
    };
    if (asked.length) ask();
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [asked.join(" "), reached]);
  return answers;
}

/** @param {string} address */
async function readiness(address) {
  try {
    const answer = await fetch(`${address}readyz`, { credentials: "omit", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.ok) return "ready";
    return answer.status === 503 ? "not ready" : "answers this browser";
  } catch {
    return "no answer to this browser";
  }
}
