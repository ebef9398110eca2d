// Queries and subscriptions: records once, records with their changes, or messages as they arrive. The
// URL has the submitted query.

import { html, useState } from "../html.js";
import { PageHead } from "../parts.js";
import { change } from "../route.js";
import { useDraft } from "../query/draft.js";
import { Expression } from "../query/expression.js";
import { LogonForm, NoTransport, PhaseIndicator, TopicFields, topicOption, RunProblem } from "../query/parts.js";
import { Results } from "../query/results.js";
import { setCredentials } from "../query/run.js";

const MODES = {
  once: { label: "Records, once", command: "sow" },
  live: { label: "Records and their changes", command: "sow_and_subscribe" },
  messages: { label: "Messages as they arrive", command: "subscribe" },
};
const FIRST_TOP = "1000";
const SAMPLE = { c: "sow", top_n: "20", o: "non_regex_topic" };

/** @typedef {{ topic: string, regex: string, type: string, filter: string, by: string, top: string, mode: keyof typeof MODES }} Query */

/** Return the query in the parameters of the URL. @param {Record<string, string>} params @returns {Query} */
function queryOf({ topic = "", regex = "", type = "json", filter = "", by = "", top = FIRST_TOP, mode = "live" }) {
  return { topic, regex, type, filter, by, top, mode: mode in MODES ? /** @type {keyof typeof MODES} */ (mode) : "live" };
}

/** @param {Query} query @returns {import("../query/run.js").Plan} */
function planOf({ topic, regex, type, filter, by, top, mode }) {
  const areMessages = mode === "messages";
  const header = { c: MODES[mode].command, t: topic, f: filter.trim() };
  const options = `${topicOption(regex)}timestamp`;
  if (areMessages) return { type, areMessages, ends: false, command: () => ({ ...header, o: `${options},bookmark` }) };
  const query = { ...header, orderby: by.trim(), top_n: top === "all" ? "" : top };
  const o = mode === "live" ? `${options},bookmark,oof` : options;
  return { type, areMessages, ends: mode === "once", command: () => ({ ...query, o }) };
}

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  if (!session.queries) return html`<${PageHead} title="Query" /><${NoTransport} />`;
  return html`<${Queries} params=${params} url=${session.queries} />`;
}

/** @param {{ params: Record<string, string>, url: string }} props */
function Queries({ params, url }) {
  const { draft, edit, topics, paths, run, isRunning, withResults, runCount, rerun } = useDraft(queryOf(params), url, planOf, SAMPLE);
  const [isPaused, setPaused] = useState(false);
  const runNow = () => {
    setPaused(false);
    rerun();
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const { top, ...others } = draft;
    change({ ...others, top: top || "all", id: null }, { isStep: true });
    runNow();
  };
  const areRecords = draft.mode !== "messages";
  return html`
    <${PageHead} title="Query"><${PhaseIndicator} run=${run} word=${isPaused && isRunning ? "Paused" : undefined} /></${PageHead}>
    <form class="query" onSubmit=${submit}>
      <div class="fields">
        <${TopicFields} topics=${topics} topic=${draft.topic} type=${draft.type} regex=${draft.regex} onChange=${edit} />
        <label class="field">
          Show
          <select name="mode" value=${draft.mode} onChange=${(/** @type {any} */ event) => edit({ mode: event.currentTarget.value })}>
            ${Object.entries(MODES).map(([name, { label }]) => html`<option value=${name}>${label}</option>`)}
          </select>
        </label>
      </div>
      <${Expression} label="Filter" kind="filter" value=${draft.filter} paths=${paths}
        placeholder="/price > 100 AND /shop LIKE '^north'" onChange=${(/** @type {string} */ filter) => edit({ filter })} />
      <div class="fields">
        ${areRecords &&
        html`
          <${Expression} label="Order by" kind="order_by" value=${draft.by} paths=${paths}
            placeholder="/price DESC" onChange=${(/** @type {string} */ by) => edit({ by })} />
          <label class="field short">
            Records at first
            <input name="top" inputmode="numeric" pattern="[1-9][0-9]*|all" title="a number, or all" value=${draft.top}
              onInput=${(/** @type {any} */ event) => edit({ top: event.currentTarget.value })} />
          </label>
        `}
        <div class="buttons left">
          <button class="main">Run</button>
          <button type="button" class="outlined" aria-pressed=${isPaused} disabled=${!isRunning} onClick=${() => setPaused(!isPaused)}>Pause</button>
          <button type="button" class="outlined" disabled=${!isRunning} onClick=${() => run?.stop()}>Stop</button>
        </div>
      </div>
    </form>
    <${RunProblem} run=${run} />
    ${run?.phase === "refused" &&
    html`<${LogonForm} reason=${run.reason} onLogon=${(/** @type {any} */ credentials) => {
      setCredentials(credentials);
      runNow();
    }} />`}
    ${withResults
      ? html`<${Results} key=${runCount} page="query" run=${withResults} params=${params} what=${withResults.plan.areMessages ? "messages" : "records"} isPaused=${isPaused} descending=${withResults.plan.areMessages} />`
      : run === null && html`<p class="hint">Choose a topic and run the query. The link contains the query.</p>`}
  `;
}
