// Keeps a table that may be very large off the main thread: watches the entries, filters and sorts
// them, and posts the visible rows only.
//
// receives    { open: { table, url } }, { view }, { isVisible }
// posts       { rows, first, found, total, moment, selected, status }

import { Watch } from "../watch.js";
import { arrange, valueOf } from "./arrange.js";
import { TABLES } from "./definitions.js";

/** @type {Watch} */
let watch;
/** @type {{ path: string, columns: import("./arrange.js").Column[] }} */
let table;
/** @type {any} */
let view = null;
/** @type {any[]} */
let arranged = [];
let isStale = true;
let arrangedFor = "";

function postRows() {
  if (!view || !watch) return;
  const key = JSON.stringify([view.find, view.sort, view.descending]);
  const entries = watch.tree.at(table.path);
  const all = entries instanceof Map ? entries : new Map();
  if ((isStale && !view.isPaused) || key !== arrangedFor) {
    arranged = arrange(all.values(), table.columns, view);
    arrangedFor = key;
    isStale = false;
  }
  const rows = arranged.slice(view.first, view.first + view.count).map((row) => ({
    id: row.id,
    cells: table.columns.map((column) => valueOf(row, column)),
  }));
  postMessage({
    rows,
    first: view.first,
    found: arranged.length,
    total: all.size,
    moment: watch.tree.moment,
    selected: view.selected ? all.get(view.selected) ?? null : null,
    status: watch.status,
  });
}

onmessage = ({ data }) => {
  if (data.open) {
    table = TABLES[data.open.table];
    watch = new Watch(data.open.url, () => {
      isStale = true;
      postRows();
    });
  }
  if (data.view) {
    view = data.view;
    postRows();
  }
  if (data.isVisible !== undefined) data.isVisible ? watch.resume() : watch.close();
};
