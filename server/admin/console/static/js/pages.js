// The table of pages. A page is an entry here and a module that exports `Page`.
//
// Page({ params, session }) is shown at `#/<path>?<params>`; the parameters contain all state that can
// be linked to (route.js).

/**
 * @typedef {object} PageEntry
 * @property {string} path   its path in the URL
 * @property {string} title
 * @property {string} key    the letter that opens it after `g`
 * @property {string} group  its heading in the navigation
 * @property {() => Promise<{Page: Function}>} load
 */

/** @type {PageEntry[]} */
export const PAGES = [
  { path: "overview", title: "Overview", key: "o", group: "", load: () => import("./pages/overview.js") },
  { path: "clients", title: "Clients", key: "c", group: "Traffic", load: () => import("./pages/clients.js") },
  { path: "subscriptions", title: "Subscriptions", key: "s", group: "Traffic", load: () => import("./pages/subscriptions.js") },
  { path: "topics", title: "Topics", key: "t", group: "Data", load: () => import("./pages/topics.js") },
  { path: "query", title: "Query", key: "u", group: "Data", load: () => import("./pages/query.js") },
  { path: "sql", title: "SQL", key: "d", group: "Data", load: () => import("./pages/sql.js") },
  { path: "replay", title: "Replay", key: "p", group: "Data", load: () => import("./pages/replay.js") },
  { path: "graph", title: "Configuration", key: "g", group: "Data", load: () => import("./pages/graph.js") },
  { path: "queues", title: "Queues", key: "q", group: "Data", load: () => import("./pages/queues.js") },
  { path: "replication", title: "Replication", key: "r", group: "Operation", load: () => import("./pages/replication.js") },
  { path: "actions", title: "Actions", key: "x", group: "Operation", load: () => import("./pages/actions.js") },
  { path: "log", title: "Log", key: "l", group: "Operation", load: () => import("./pages/log.js") },
  { path: "journals", title: "Journals", key: "j", group: "Operation", load: () => import("./pages/journals.js") },
  { path: "administration", title: "Administration", key: "a", group: "Operation", load: () => import("./pages/administration.js") },
];
