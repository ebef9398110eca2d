// The connected clients, their traffic, and the diagnosis of slow ones.

import { html, useEffect, useState } from "../html.js";
import { OperationButton } from "../operation.js";
import { counted, visible } from "../format.js";
import { Aside, Found, PageHead, Search, Values } from "../parts.js";
import { change, href } from "../route.js";
import { readJson } from "../request.js";
import { useRefusal } from "../session.js";
import { TABLES } from "../tables/definitions.js";
import { useWorkerTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";

const { columns } = TABLES.clients;
const UNREAD = columns.findIndex((column) => column.key === "queue_depth_out");

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { wanted, setPaused, props } = useTableState(params, { sort: "id" });
  const shown = useWorkerTable("clients", wanted);
  const refusal = useRefusal("/amps/instance/clients", session, shown.status);
  const back = href("clients", { ...params, id: "" });
  return html`
    <${PageHead} title="Clients">
      <${Search} label="Find clients" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <button class="outlined" aria-pressed=${wanted.isPaused} onClick=${() => setPaused(!wanted.isPaused)}>Pause</button>
      <${Found} found=${shown.found} total=${shown.total} what="clients" refusal=${refusal} />
    </${PageHead}>
    <div class=${params.id ? "with-beside" : ""}>
      <${Table}
        ...${props}
        label="Clients"
        columns=${columns}
        shown=${shown}
        isMarked=${(/** @type {any[]} */ cells) => Number(cells[UNREAD]) > 0}
        empty=${refusal || (wanted.find ? "No client matches." : "No client is connected.")}
      />
      ${params.id &&
      html`<${Client} key=${params.id} id=${params.id} entry=${shown.selected} moment=${shown.moment} back=${back} session=${session} />`}
    </div>
  `;
}

/** @param {{ id: string, entry: any, moment: string, back: string, session: import("../session.js").Session }} props */
function Client({ id, entry, moment, back, session }) {
  if (!entry) {
    return html`<${Aside} title=${`Client ${id}`} back=${back}><p>It is not connected${moment ? "" : ", or not known yet"}.</p></${Aside}>`;
  }
  const path = `/amps/administrator/clients/${id}/disconnect`;
  const operation = {
    path,
    label: "Disconnect",
    title: `Disconnect ${visible(entry.client_name)}?`,
    text: "Its connection is closed, and its subscriptions end. Most clients connect again by themselves.",
    isDestructive: true,
  };
  return html`
    <${Aside} title=${visible(entry.client_name)} back=${back}>
      <p class="buttons left">
        <a class="button outlined" href=${href("subscriptions", { find: `client_id=${id}` })}>
          ${counted(entry.subscription_count, "subscriptions")}
        </a>
        <${OperationButton} operation=${operation} session=${session} name=${entry.client_name} />
      </p>
      <${Diagnosis} id=${id} moment=${moment} />
      <${Values} path=${`/amps/instance/clients/${id}`} entry=${entry} />
    </${Aside}>
  `;
}

/** Shows the diagnosis of a client: its state, the reasons and the remedies. @param {{ id: string, moment: string }} props */
function Diagnosis({ id, moment }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  useEffect(() => {
    readJson(`/amps/instance/clients/${id}/explain.json`).then(
      (document) => setFound(document.amps.instance.clients[0].explain),
      () => setFound(null), // the client has disconnected, or the user is not entitled
    );
  }, [id, moment]);
  if (!found) return null;
  const reasons = found.reasons ?? [];
  const isHealthy = !reasons.some((/** @type {any} */ reason) => reason.trouble === "1");
  return html`
    <section class=${isHealthy ? "why" : "why trouble"}>
      <h3>This client ${STATES[found.state] ?? visible(found.state)}</h3>
      ${reasons.map((/** @type {any} */ reason) => html`
        <p>${visible(reason.says)} ${reason.remedy && html`<em>${visible(reason.remedy)}</em>`}</p>
      `)}
      <details>
        <summary>In words</summary>
        ${found.sentences.map((/** @type {string} */ sentence) => html`<p>${visible(sentence)}</p>`)}
      </details>
      <p><a href=${`/amps/instance/clients/${id}/explain`}>The whole diagnosis</a></p>
    </section>
  `;
}

/** @type {Record<string, string>} */
const STATES = {
  slow: "is slow",
  "catching up": "is catching up",
  "stopped reading": "has stopped reading",
};
