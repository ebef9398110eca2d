// The fields of a topic, before anything of it has been asked for: a few messages are looked at, so
// that names can be completed in a first filter, too.

import { useEffect, useState } from "../html.js";
import { Client } from "../amps/client.js";
import { fieldsOf } from "../amps/bodies.js";
import { connection } from "./run.js";

const TYPING = 400;
const ENOUGH = 20;
const PATIENCE = 5_000;

/** @type {string[]} */
const NOTHING = [];

/**
 * Paths of fields in some messages of a topic; none as long as nothing is known.
 * @param {string} url of the transport
 * @param {{ topic: string, type: string } | undefined} wanted a topic that is there, if they are not known yet
 * @param {import("../amps/messages.js").Header} command what shows some of its messages
 */
export function useSample(url, wanted, command) {
  const [paths, setPaths] = useState(NOTHING);
  const key = wanted ? `${wanted.type} ${wanted.topic}` : "";
  useEffect(() => {
    setPaths(NOTHING);
    if (!wanted) return undefined;
    /** @type {Client | null} */
    let client = null;
    const close = () => client?.close();
    const timers = [
      setTimeout(() => (client = look(url, wanted, command, setPaths)), TYPING),
      setTimeout(close, TYPING + PATIENCE),
    ];
    return () => {
      timers.forEach(clearTimeout);
      close();
    };
  }, [url, key]);
  return paths;
}

/**
 * @param {string} url
 * @param {{ topic: string, type: string }} wanted
 * @param {import("../amps/messages.js").Header} command
 * @param {(paths: string[]) => void} told
 * @returns {Client}
 */
function look(url, { topic, type }, command, told) {
  /** @type {Set<string>} */
  const paths = new Set();
  let seen = 0;
  /** @type {(message: import("../amps/messages.js").Message) => void} */
  const hear = ({ header, body }) => {
    if (header.c === "ack" || seen === ENOUGH) return;
    seen += 1;
    for (const path of Object.keys(fieldsOf(type, body))) paths.add(path);
    told([...paths]);
    if (seen === ENOUGH) client.close();
  };
  const client = connection(url, type, ({ state }) => {
    if (state === "live") client.begin({ ...command, t: topic }, hear, ({ what }) => what !== "processed" && client.close());
    else if (state !== "connecting") client.close();
  });
  return client;
}
