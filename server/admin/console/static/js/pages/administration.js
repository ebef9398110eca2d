// The administrative operations, with the same entitlement as below /amps/administrator. Operations that
// the user is not entitled to are shown as disabled, with the reason.

import { html, useEffect, useState } from "../html.js";
import { GROUPS, OperationButton, operationsOf, TOP } from "../operation.js";
import { visible } from "../format.js";
import { useLive } from "../live.js";
import { PageHead, Search } from "../parts.js";
import { readJson } from "../request.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";

const ON_REQUEST = "amps-action-on-admin";
const MAX_SHOWN = 200;

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, status } = useLive("/amps/instance", "queues,replication,transports");
  const find = params.find ?? "";
  return html`
    <${PageHead} title="Administration">
      <${Search} label="Find operations" value=${find} onFind=${(/** @type {string} */ text) => change({ find: text })} />
    </${PageHead}>
    <p class="hint">
      Clients are disconnected on <a href=${href("clients")}>their page</a>, topics compacted on
      ${" "}<a href=${href("topics")}>theirs</a>, and journals removed on <a href=${href("journals")}>theirs</a>.
      All of it is logged <span class="whole">(19-0011)</span>.
    </p>
    <div class="offers">
      <${RequestedActions} find=${find} session=${session} />
      ${GROUPS.map((group) => html`<${GroupView} key=${group.title} group=${group} tree=${tree} status=${status} find=${find} session=${session} />`)}
    </div>
  `;
}

/** @param {{ group: import("../operation.js").OperationGroup, tree: import("../tree.js").Tree, status: import("../events.js").ConnectionStatus, find: string, session: import("../session.js").Session }} props */
function GroupView({ group, tree, status, find, session }) {
  const refusal = useRefusal(group.place ? `/amps/instance/${group.place}` : TOP, session, status);
  const all = group.place ? tree.entries(`amps/instance/${group.place}`) : [{ id: "" }];
  const isLike = (/** @type {string} */ text) => text.toLowerCase().includes(find.toLowerCase());
  const matching = all.filter((entry) => isLike(group.title) || isLike(entry.id) || group.operations.some((operation) => isLike(operation.label)));
  if (!matching.length && group.place && refusal && isLike(group.title)) {
    return html`<section class="offer"><h2>${group.title}</h2><p class="hint">${refusal}</p></section>`;
  }
  if (!matching.length) return null;
  return html`
    <section class="offer">
      <h2>${group.title}</h2>
      <ul>
        ${matching.slice(0, MAX_SHOWN).map((entry) => html`
          <li key=${entry.id}>
            ${entry.id && html`<span class="name">${visible(entry.id)}</span>`}
            <span class="buttons">
              ${operationsOf(group, entry.id, entry).map((operation) => html`<${OperationButton} operation=${operation} session=${session} name=${entry.id} />`)}
            </span>
          </li>
        `)}
      </ul>
      ${matching.length > MAX_SHOWN && html`<p>${matching.length - MAX_SHOWN} more: use the search.</p>`}
    </section>
  `;
}

/** @typedef {{ path: string, name: string, about: string, parameters: string[] }} RequestedAction */

/** Return the actions that run on request; actions with the same path run together. @param {{ triggers: import("./actions.js").Trigger[] }[]} actions @returns {RequestedAction[]} */
function requestedActions(actions) {
  /** @type {Map<string, RequestedAction>} */
  const found = new Map();
  for (const { module, options } of actions.flatMap(({ triggers }) => triggers)) {
    if (module !== ON_REQUEST) continue;
    const all = (/** @type {string} */ name) => options.filter(([key]) => key === name).map(([, value]) => value);
    const [path = ""] = all("Path");
    const one = found.get(path) ?? { path, name: "", about: "", parameters: [] };
    const [name = path] = all("Name");
    found.set(path, {
      path,
      name: [one.name, name].filter(Boolean).join(" and "),
      about: [one.about, ...all("Description")].filter(Boolean).join("; "),
      parameters: [...new Set([...one.parameters, ...all("RequiredParameter")])],
    });
  }
  return [...found.values()];
}

/** Shows the actions that an operator can run. @param {{ find: string, session: import("../session.js").Session }} props */
function RequestedActions({ find, session }) {
  const [actions, setActions] = useState(/** @type {RequestedAction[]} */ ([]));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    readJson("/console/actions.json").then(
      (found) => setActions(requestedActions(found.actions)),
      (error) => setProblem(error.message),
    );
  }, []);
  const like = actions.filter((one) => `actions ${one.path} ${one.name} ${one.about}`.toLowerCase().includes(find.toLowerCase()));
  if (problem) return html`<section class="offer"><h2>Actions</h2><p class="hint">${problem}</p></section>`;
  if (!like.length) return null;
  return html`
    <section class="offer">
      <h2>Actions</h2>
      <ul>
        ${like.map((one) => html`
          <li key=${one.path}>
            <span class="name">${visible(one.name)} ${one.about && html`<small>${visible(one.about)}</small>`}</span>
            <span class="buttons"><${OperationButton}
              operation=${{
                path: `${TOP}/actions/${encodeURIComponent(one.path)}`,
                label: "Run",
                title: `Run ${visible(one.name)}?`,
                text: one.about ? visible(one.about) : "The action is started.",
                parameters: one.parameters,
              }}
              session=${session}
              name=${one.name}
            /></span>
          </li>
        `)}
      </ul>
    </section>
  `;
}
