// Who looks at the page, at which instance, and what they may do.

import { useEffect, useState } from "./html.js";
import { readJson } from "./request.js";

/**
 * @typedef {object} Session
 * @property {string} name
 * @property {string} group
 * @property {string} description
 * @property {string} environment
 * @property {string} version
 * @property {number} interval  milliseconds between samples
 * @property {string} base      where the page's files are
 * @property {string} user      empty if nobody has logged on
 * @property {boolean} is_asked whether entitlement is asked for each deed
 * @property {string | null} queries  the URL of the transport for queries
 * @property {string} sql         the name of the transport for SQL; empty if there is none
 * @property {string} sql_refusal why a transport for SQL cannot be used
 */

/** @returns {Promise<Session>} */
export async function loadSession() {
  return readJson("/console/session.json");
}

/** What the user is called in sentences. @param {Session} session */
export function userOf(session) {
  return session.user ? `User ${session.user}` : "A user who has not logged on";
}

/**
 * Why nothing is to be seen of a path; empty unless it is kept from the user.
 * @param {string} path
 * @param {Session} session
 * @param {import("./events.js").Standing} [standing] of whoever watches it
 */
export function useRefusal(path, session, standing) {
  const may = useMay(path, session);
  if (standing?.state === "refused") return standing.reason;
  return may === false ? `${userOf(session)} may not see ${path}: entitlement does not allow it.` : "";
}

/** @type {Map<string, boolean>} */
const known = new Map();
/** @type {Map<string, Set<(may: boolean) => void>>} */
const asked = new Map();
const MOST_AT_A_TIME = 40;

/**
 * Whether the user may ask for a path; undefined as long as that is not known.
 * @param {string} path
 * @param {Session} session
 * @returns {boolean | undefined}
 */
export function useMay(path, session) {
  const [may, setMay] = useState(session.is_asked ? known.get(path) : true);
  useEffect(() => {
    if (!session.is_asked) return undefined;
    const found = known.get(path);
    setMay(found);
    if (found !== undefined) return undefined;
    if (!asked.size) setTimeout(askAll);
    const waiting = asked.get(path) ?? new Set();
    asked.set(path, waiting.add(setMay));
    return () => waiting.delete(setMay);
  }, [path, session]);
  return may;
}

/** Ask for all paths that somebody on the page wants to know of, together. */
async function askAll() {
  const paths = [...asked.keys()];
  const waiting = new Map(asked);
  asked.clear();
  for (let first = 0; first < paths.length; first += MOST_AT_A_TIME) {
    const some = paths.slice(first, first + MOST_AT_A_TIME);
    try {
      const found = await readJson(`/console/may.json?paths=${encodeURIComponent(some.join("\n"))}`);
      for (const path of some) {
        known.set(path, found[path]);
        waiting.get(path)?.forEach((told) => told(found[path]));
      }
    } catch {
      some.forEach((path) => waiting.get(path)?.forEach((told) => told(false)));
    }
  }
}
