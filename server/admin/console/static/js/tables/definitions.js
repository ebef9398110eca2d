// The tables that may be very large and are kept by a worker: the path of their entries, and their
// columns.

/** @typedef {import("./arrange.js").Column} Column */

/** @type {Record<string, { path: string, columns: Column[] }>} */
export const TABLES = {
  clients: {
    path: "amps/instance/clients",
    columns: [
      { key: "id", label: "Id", kind: "count", width: 5 },
      { key: "client_name", label: "Client", width: 16 },
      { key: "queue_depth_out", label: "Unread", kind: "count", width: 6, about: "messages that the client has not read" },
      { key: "queue_max_latency", label: "Waiting", kind: "seconds", width: 6, about: "waiting time of the oldest of these" },
      { key: "messages_in_per_sec", label: "In/s", kind: "rate", width: 6, about: "messages and commands received per second" },
      { key: "messages_out_per_sec", label: "Out/s", kind: "rate", width: 6, about: "messages and acks sent per second" },
      { key: "bytes_in_per_sec", label: "Bytes in/s", kind: "bytes", width: 7.5 },
      { key: "bytes_out_per_sec", label: "Bytes out/s", kind: "bytes", width: 8 },
      { key: "subscription_count", label: "Subs", kind: "count", width: 5, about: "subscriptions" },
      { key: "transport", label: "Transport", width: 9 },
      { key: "remote_address", label: "Address", width: 12 },
      { key: "authenticated_id", label: "User", width: 8 },
    ],
  },
  subscriptions: {
    path: "amps/instance/subscriptions",
    columns: [
      { key: "id", label: "Id", kind: "count", width: 5 },
      { key: "client_id", label: "Client", kind: "count", width: 5, about: "the client's id" },
      { key: "topic", label: "Topic", width: 14 },
      { key: "message_type", label: "Type", width: 6 },
      { key: "filter", label: "Filter", width: 16 },
      { key: "options", label: "Options", width: 11 },
      { key: "bookmark", label: "Bookmark", width: 8 },
      { key: "seconds_behind", label: "Behind", kind: "seconds", width: 6, about: "age of the last message replayed to it" },
      { key: "backlog", label: "Leased", kind: "count", width: 6, about: "queue messages leased to it" },
      { key: "sub_id", label: "Subscription id", width: 12 },
    ],
  },
};
