// The source of the rows of a table: a worker, for tables that may be very large, or entries of the
// page.

import { useEffect, useMemo, useRef, useState } from "../html.js";
import { onVisibility } from "../live.js";
import { arrange, valueOf } from "./arrange.js";
import { TABLES } from "./definitions.js";

/**
 * @typedef {object} Window  the requested rows of a table
 * @property {string} find
 * @property {string} sort
 * @property {boolean} descending
 * @property {number} first
 * @property {number} count
 * @property {string} selected  id of the entry that is shown in full; empty for none
 * @property {boolean} isPaused whether the order of rows is frozen
 *
 * @typedef {object} Shown
 * @property {{ id: string, cells: (string | number)[] }[]} rows
 * @property {number} first
 * @property {number} found
 * @property {number} total
 * @property {string} moment
 * @property {import("../tree.js").Entry | null} [selected]
 * @property {import("../events.js").ConnectionStatus} [status]
 */

/** @type {Shown} */
const NO_ROWS = { rows: [], first: 0, found: 0, total: 0, moment: "" };

const scripts = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("console", {
  createScriptURL: (/** @type {string} */ url) => url,
}) ?? { createScriptURL: (/** @type {string} */ url) => url };

/**
 * Return the rows of a table that a worker keeps.
 * @param {string} name one of TABLES
 * @param {Window} wanted
 * @returns {Shown}
 */
export function useWorkerTable(name, wanted) {
  const [shown, setShown] = useState(NO_ROWS);
  const worker = useRef(/** @type {Worker | null} */ (null));
  useEffect(() => {
    const url = scripts.createScriptURL(new URL("./worker.js", import.meta.url).href);
    const current = new Worker(/** @type {any} */ (url), { type: "module" });
    worker.current = current;
    current.onmessage = ({ data }) => setShown(data);
    current.postMessage({ open: { table: name, url: `/${TABLES[name].path}?watch` }, view: wanted });
    const stopListening = onVisibility((isVisible) => current.postMessage({ isVisible }));
    return () => {
      stopListening();
      current.terminate();
    };
  }, [name]);
  useEffect(() => worker.current?.postMessage({ view: wanted }), Object.values(wanted));
  return shown;
}

/**
 * Return rows of entries of the page.
 * @param {{ id: string }[]} entries
 * @param {import("./arrange.js").Column[]} columns
 * @param {Window} wanted
 * @param {string} [moment]
 * @returns {Shown}
 */
export function usePageTable(entries, columns, wanted, moment = "") {
  const arranged = useMemo(
    () => arrange(entries, columns, wanted),
    [entries, columns, moment, wanted.find, wanted.sort, wanted.descending],
  );
  return {
    rows: arranged.slice(wanted.first, wanted.first + wanted.count).map((row) => ({
      id: row.id,
      cells: columns.map((column) => valueOf(row, column)),
    })),
    first: wanted.first,
    found: arranged.length,
    total: entries.length,
    moment,
    selected: entries.find((entry) => entry.id === wanted.selected) ?? null,
  };
}
