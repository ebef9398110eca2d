// The subscriptions of all clients.

import { html } from "../html.js";
import { visible } from "../format.js";
import { Aside, Found, PageHead, Search, Values } from "../parts.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";
import { TABLES } from "../tables/definitions.js";
import { useWorkerTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";

const { columns } = TABLES.subscriptions;

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { wanted, setPaused, props } = useTableState(params, { sort: "id" });
  const shown = useWorkerTable("subscriptions", wanted);
  const refusal = useRefusal("/amps/instance/subscriptions", session, shown.status);
  const entry = shown.selected;
  return html`
    <${PageHead} title="Subscriptions">
      <${Search} label="Find subscriptions" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <button class="outlined" aria-pressed=${wanted.isPaused} onClick=${() => setPaused(!wanted.isPaused)}>Pause</button>
      <${Found} found=${shown.found} total=${shown.total} what="subscriptions" refusal=${refusal} />
    </${PageHead}>
    <div class=${params.id ? "with-beside" : ""}>
      <${Table}
        ...${props}
        label="Subscriptions"
        columns=${columns}
        shown=${shown}
        empty=${refusal || (wanted.find ? "No subscription matches." : "There are no subscriptions.")}
      />
      ${params.id &&
      html`
        <${Aside} title=${entry ? visible(entry.topic) : `Subscription ${params.id}`} back=${href("subscriptions", { ...params, id: "" })}>
          ${entry
            ? html`
                <p class="buttons left">
                  <a class="button outlined" href=${href("clients", { id: entry.client_id })}>Client ${entry.client_id}</a>
                </p>
                <${Values} path=${`/amps/instance/subscriptions/${params.id}`} entry=${entry} />
              `
            : html`<p>It has ended.</p>`}
        </${Aside}>
      `}
    </div>
  `;
}
