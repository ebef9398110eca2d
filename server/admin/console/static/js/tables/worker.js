// Keeps a table that may have very many rows away from the thread that draws: it watches the entries,
// arranges them, and hands over just those rows that are seen.
//
// It is told    { open: { table, url } }, { view }, { isSeen }
// It tells      { rows, first, found, total, moment, selected, standing }

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

function tell() {
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
    standing: watch.standing,
  });
}

onmessage = ({ data }) => {
  if (data.open) {
    table = TABLES[data.open.table];
    watch = new Watch(data.open.url, () => {
      isStale = true;
      tell();
    });
  }
  if (data.view) {
    view = data.view;
    tell();
  }
  if (data.isSeen !== undefined) data.isSeen ? watch.resume() : watch.close();
};
