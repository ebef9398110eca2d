// The route: `#/clients?sort=bytes_out&find=reader`. It contains all state that can be linked to.

import { useEffect, useState } from "./html.js";

/**
 * @typedef {object} Route
 * @property {string} path
 * @property {Record<string, string>} params
 */

/** @returns {Route} */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path || "overview", params: Object.fromEntries(new URLSearchParams(query)) };
}

/**
 * Return the link to a page.
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} [params] empty ones are omitted
 */
export function href(path, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

/**
 * Change parameters of the current page; keep the others.
 * @param {Record<string, string | number | null>} changes null removes a parameter
 * @param {{ isStep?: boolean }} [how] a step gets an entry of its own in the browser's history
 */
export function change(changes, { isStep = false } = {}) {
  const { path, params } = here();
  const target = href(path, { ...params, ...changes });
  if (target === location.hash) return;
  if (isStep) location.hash = target;
  else {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

/** @returns {Route} */
export function useRoute() {
  const [route, setRoute] = useState(here);
  useEffect(() => {
    const follow = () => setRoute(here());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}
