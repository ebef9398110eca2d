// The fields of a topic before its first query: a few messages are sampled, so that the first filter
// has completions, too.

import { useEffect, useState } from "../html.js";
import { Client } from "../amps/client.js";
import { fieldsOf } from "../amps/bodies.js";
import { connection } from "./run.js";

const TYPING_DELAY_MS = 400;
const MAX_MESSAGES = 20;
const TIMEOUT_MS = 5_000;

/** @type {string[]} */
const NO_PATHS = [];

/**
 * Return the paths of fields in some messages of a topic; none until messages have arrived.
 * @param {string} url of the transport
 * @param {{ topic: string, type: string } | undefined} wanted an existing topic whose fields are unknown
 * @param {import("../amps/messages.js").Header} command requests some of its messages
 */
export function useSample(url, wanted, command) {
  const [paths, setPaths] = useState(NO_PATHS);
  const key = wanted ? `${wanted.type} ${wanted.topic}` : "";
  useEffect(() => {
    setPaths(NO_PATHS);
    if (!wanted) return undefined;
    /** @type {Client | null} */
    let client = null;
    const close = () => client?.close();
    const timers = [
      setTimeout(() => (client = sampleFields(url, wanted, command, setPaths)), TYPING_DELAY_MS),
      setTimeout(close, TYPING_DELAY_MS + TIMEOUT_MS),
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
 * @param {(paths: string[]) => void} onPaths
 * @returns {Client}
 */
function sampleFields(url, { topic, type }, command, onPaths) {
  /** @type {Set<string>} */
  const paths = new Set();
  let count = 0;
  /** @type {(message: import("../amps/messages.js").Message) => void} */
  const onMessage = ({ header, body }) => {
    if (header.c === "ack" || count === MAX_MESSAGES) return;
    count += 1;
    for (const path of Object.keys(fieldsOf(type, body))) paths.add(path);
    onPaths([...paths]);
    if (count === MAX_MESSAGES) client.close();
  };
  const client = connection(url, type, ({ state }) => {
    if (state === "live") client.begin({ ...command, t: topic }, onMessage, ({ state }) => state !== "processed" && client.close());
    else if (state !== "connecting") client.close();
  });
  return client;
}
