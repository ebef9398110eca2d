// The session: the instance, the user, and the permissions of the user.

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
 * @property {string} base      URL prefix of the page's files
 * @property {string} user      empty without a logon
 * @property {boolean} is_asked whether operations need entitlement
 * @property {string | null} queries  the URL of the transport for queries
 * @property {string} sql         the name of the transport for SQL; empty if there is none
 * @property {string} sql_refusal why a transport for SQL cannot be used
 */

/** @returns {Promise<Session>} */
export async function loadSession() {
  return readJson("/console/session.json");
}

/** Return the name of the user for sentences. @param {Session} session */
export function userLabel(session) {
  return session.user ? `User ${session.user}` : "A user who has not logged on";
}

/**
 * Return the reason why a path is not shown; empty if the user may see it.
 * @param {string} path
 * @param {Session} session
 * @param {import("./events.js").ConnectionStatus} [status] of the connection that watches it
 */
export function useRefusal(path, session, status) {
  const isAllowed = usePermission(path, session);
  if (status?.state === "refused") return status.reason;
  return isAllowed === false ? `${userLabel(session)} may not see ${path}: entitlement does not allow it.` : "";
}

/** @type {Map<string, boolean>} */
const permissions = new Map();
/** @type {Map<string, Set<(isAllowed: boolean) => void>>} */
const pending = new Map();
const MAX_PATHS_PER_REQUEST = 40;

/**
 * Return whether the user may request a path; undefined until the server has answered.
 * @param {string} path
 * @param {Session} session
 * @returns {boolean | undefined}
 */
export function usePermission(path, session) {
  const [isAllowed, setAllowed] = useState(session.is_asked ? permissions.get(path) : true);
  useEffect(() => {
    if (!session.is_asked) return undefined;
    const found = permissions.get(path);
    setAllowed(found);
    if (found !== undefined) return undefined;
    if (!pending.size) setTimeout(requestAll);
    const waiting = pending.get(path) ?? new Set();
    pending.set(path, waiting.add(setAllowed));
    return () => waiting.delete(setAllowed);
  }, [path, session]);
  return isAllowed;
}

/** Request the permissions of all pending paths together. */
async function requestAll() {
  const paths = [...pending.keys()];
  const waiting = new Map(pending);
  pending.clear();
  for (let first = 0; first < paths.length; first += MAX_PATHS_PER_REQUEST) {
    const some = paths.slice(first, first + MAX_PATHS_PER_REQUEST);
    try {
      const found = await readJson(`/console/may.json?paths=${encodeURIComponent(some.join("\n"))}`);
      for (const path of some) {
        permissions.set(path, found[path]);
        waiting.get(path)?.forEach((listener) => listener(found[path]));
      }
    } catch {
      some.forEach((path) => waiting.get(path)?.forEach((listener) => listener(false)));
    }
  }
}
