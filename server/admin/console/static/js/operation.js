// The administrative operations on replication, queues and others, and their button, which asks for
// confirmation, and shows why it is disabled.

import { html } from "./html.js";
import { confirm } from "./dialog.js";
import { visible } from "./format.js";
import { usePermission, userLabel } from "./session.js";

/** The path of all operations. */
export const TOP = "/amps/administrator";

/**
 * @typedef {object} OperationGroup  the operations on one kind of object
 * @property {string} title
 * @property {string} path  of the group below /amps/administrator
 * @property {string} [place] path of the objects below /amps/instance; none for the instance itself
 * @property {{ name: string, label: string, text: string, isDestructive?: boolean, parameters?: string[], unless?: (entry: any) => string }[]} operations
 */

/** @type {OperationGroup[]} */
export const GROUPS = [
  {
    title: "Transports",
    path: "transports",
    place: "transports",
    operations: [
      { name: "enable", label: "Enable", text: "It accepts connections.", unless: (entry) => (Number(entry.is_enabled) ? "It is enabled." : "") },
      {
        name: "disable",
        label: "Disable",
        text: "It accepts no connections, and existing ones are closed.",
        isDestructive: true,
        unless: (entry) => (Number(entry.is_enabled) ? "" : "It is disabled."),
      },
    ],
  },
  {
    title: "Replication",
    path: "replication",
    place: "replication",
    operations: [
      { name: "reconnect", label: "Reconnect", text: "The connection is closed, and opened again." },
      {
        name: "downgrade",
        label: "Downgrade",
        text: "Publishers stop waiting for this destination. If this instance fails, it may lack their last messages.",
        isDestructive: true,
        unless: (entry) => (entry.replication_type === "async" ? "Publishers do not wait for it." : ""),
      },
      { name: "upgrade", label: "Upgrade", text: "Publishers wait for this destination again.", unless: (entry) => (entry.replication_type === "sync" ? "Publishers already wait for it." : "") },
    ],
  },
  {
    title: "Queues",
    path: "queues",
    place: "queues",
    operations: [
      { name: "redrive", label: "Redrive", text: "Dead letters return to the queues that they come from. Other messages stay. With a filter, only those that match.", parameters: ["filter"] },
      { name: "move", label: "Move", text: "All messages that no consumer has move to another queue, and lose their delivery counts. With a filter, only those that match.", isDestructive: true, parameters: ["to", "filter"] },
      { name: "purge", label: "Purge", text: "All messages that no consumer has are removed, and do not become dead letters. With a filter, only those that match.", isDestructive: true, parameters: ["filter"] },
      { name: "enable_proxied_transfer", label: "Enable proxied transfer", text: "The queue claims messages of instances that cannot be reached. If such an instance continues, messages may be delivered twice.", isDestructive: true, unless: (entry) => (Number(entry.proxied_transfer) ? "It is enabled." : "") },
      { name: "disable_proxied_transfer", label: "Disable proxied transfer", text: "The queue leaves messages to the instances that own them.", unless: (entry) => (Number(entry.proxied_transfer) ? "" : "It is disabled.") },
    ],
  },
  {
    title: "Authorization",
    path: "authorization",
    operations: [
      { name: "authentication/reset", label: "Reset authentication", text: "Cached decisions are discarded, and all users have to log on to this page again." },
      { name: "entitlement/reset", label: "Reset entitlement", text: "Cached decisions are discarded." },
    ],
  },
  {
    title: "Diagnostics",
    path: "",
    operations: [
      { name: "diagnostics/dump", label: "Dump queues", text: "The state of the queues is written to the log." },
      { name: "minidump", label: "Minidump", text: "The state of the process is written to a file, without stopping it." },
    ],
  },
];

/**
 * Return the operations on an object.
 * @param {OperationGroup} group
 * @param {string} id the name of the object; empty for the instance
 * @param {any} entry its statistics
 * @returns {import("./dialog.js").Operation[]}
 */
export function operationsOf(group, id, entry) {
  return group.operations.map(({ name, label, text, isDestructive, parameters, unless }) => {
    const names = [...group.path.split("/"), ...(id ? [encodeURIComponent(id)] : []), ...name.split("/")];
    return {
      path: `${TOP}/${names.filter(Boolean).join("/")}`,
      label,
      title: `${label}${id ? ` ${visible(id)}` : ""}?`,
      text,
      isDestructive,
      parameters,
      unless: unless?.(entry),
    };
  });
}

/** Return the operations on an object of a kind. @param {string} path of its group @param {string} id @param {any} entry */
export function operationsAt(path, id, entry) {
  return GROUPS.filter((group) => group.path === path).flatMap((group) => operationsOf(group, id, entry));
}

/**
 * @param {{
 *   operation: import("./dialog.js").Operation,
 *   session: import("./session.js").Session,
 *   name?: string,
 * }} props `name` is the object of the operation, for screen readers
 */
export function OperationButton({ operation, session, name = "" }) {
  const isAllowed = usePermission(operation.path, session);
  const reason = isAllowed === false ? `${userLabel(session)} may not do this: entitlement does not allow it.` : (operation.unless ?? "");
  const isDisabled = !isAllowed || Boolean(operation.unless);
  return html`
    <button
      class=${operation.isDestructive ? "grave outlined" : "outlined"}
      aria-disabled=${isDisabled ? "true" : undefined}
      aria-label=${[operation.label, name, reason].filter(Boolean).join(", ")}
      title=${reason || undefined}
      onClick=${() => !isDisabled && confirm(operation)}
    >
      ${operation.label}
    </button>
  `;
}
