// The actions of the configuration: triggers, steps, the last run with its outcome, and the next run.

import { html, useEffect, useMemo, useState } from "../html.js";
import { clock, count, duration, visible } from "../format.js";
import { useLive } from "../live.js";
import { Aside, Found, PageHead, Search } from "../parts.js";
import { readJson } from "../request.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";
import { usePageTable } from "../tables/source.js";
import { useTableState } from "../tables/state.js";
import { Table } from "../tables/table.js";

/** @type {import("../tables/arrange.js").Column[]} */
const COLUMNS = [
  { key: "trigger", label: "Trigger", width: 18 },
  { key: "does", label: "Steps", width: 20 },
  { key: "runs", label: "Runs", kind: "count", width: 5 },
  { key: "failures", label: "Failed", kind: "count", width: 6 },
  { key: "waiting", label: "Waiting", kind: "count", width: 6.5, about: "runs that have not started" },
  { key: "last_run", label: "Last run", width: 9 },
  { key: "took", label: "Took", kind: "seconds", width: 6 },
  { key: "outcome", label: "Outcome", width: 12 },
  { key: "next_run_at", label: "Next run", width: 9 },
];
const FAILURES = COLUMNS.findIndex((column) => column.key === "failures");

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree } = useLive("/amps/instance", "processors"); // a change reloads the actions
  const { actions, problem } = useActions(tree.moment);
  const { wanted, props } = useTableState(params, { sort: "trigger" });
  const entries = useMemo(() => actions.map(entryOf), [actions]);
  const shown = usePageTable(entries, COLUMNS, wanted, tree.moment);
  const refusal = useRefusal("/console/actions", session);
  const action = actions[Number(params.id) - 1];
  return html`
    <${PageHead} title="Actions">
      <${Search} label="Find actions" value=${wanted.find} onFind=${(/** @type {string} */ find) => change({ find })} />
      <${Found} found=${shown.found} total=${shown.total} what="actions" refusal=${refusal} />
    </${PageHead}>
    ${problem && !refusal && html`<p class="notice bad" role="alert">${problem}</p>`}
    <div class=${params.id ? "with-beside" : ""}>
      <${Table}
        ...${props}
        label="Actions"
        columns=${COLUMNS}
        shown=${shown}
        isMarked=${(/** @type {any[]} */ cells) => Number(cells[FAILURES]) > 0}
        empty=${refusal || problem || (wanted.find ? "No action matches." : "The configuration has no actions.")}
      />
      ${params.id && action && html`<${Action} action=${action} back=${href("actions", { ...params, id: "" })} />`}
    </div>
  `;
}

/** @param {string} moment a change reloads the actions */
function useActions(moment) {
  const [actions, setActions] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    readJson("/console/actions.json").then(
      (found) => {
        setActions(found.actions);
        setProblem("");
      },
      (error) => setProblem(error.message),
    );
  }, [moment]);
  return { actions, problem };
}

/** @typedef {{ module: string, options: [string, string][] }} Trigger */

const short = (/** @type {string} */ module) => module.replace(/^amps-action-(on|do|if)-/, "").replaceAll("-", " ");

/** Return the name of a trigger, with the option that distinguishes it from others of its module. @param {Trigger} trigger */
function triggerName({ module, options }) {
  const values = new Map(options);
  const own = values.get("Name") ?? values.get("Path") ?? options[0]?.[1] ?? "";
  return `${short(module)} ${visible(own)}`.trim();
}

/** @param {any} action @param {number} index */
function entryOf(action, index) {
  const { last } = action;
  return {
    id: String(index + 1),
    trigger: action.triggers.map(triggerName).join(", "),
    does: action.parts.map(short).join(", then "),
    runs: action.runs,
    failures: action.failures,
    waiting: action.waiting,
    last_run: last ? clock(last.began * 1e3) : "",
    took: last ? last.seconds : "",
    outcome: last ? outcome(last) : "",
    next_run_at: action.next_run ? clock(action.next_run * 1e3) : "",
  };
}

/** @param {{ failure: string, ended_by: string }} run */
function outcome(run) {
  if (run.failure) return `failed: ${run.failure}`;
  return run.ended_by ? `ended by ${short(run.ended_by)}` : "done";
}

/** @param {{ action: any, back: string }} props */
function Action({ action, back }) {
  return html`
    <${Aside} title=${action.triggers.map(triggerName).join(", ")} back=${back}>
      <ol class="steps">
        ${action.triggers.map((/** @type {Trigger} */ { module, options }) => html`
          <li>
            <span class="kind">on</span> ${module}
            ${options.length > 0 &&
            html`<ul class="options">${options.map(([name, value]) => html`<li><span class="kind">${name}</span> ${visible(value)}</li>`)}</ul>`}
          </li>
        `)}
        ${action.parts.map((/** @type {string} */ module) => html`<li><span class="kind">${/-if-/.test(module) ? "if" : "do"}</span> ${module}</li>`)}
      </ol>
      <table class="values">
        <tbody>
          <tr><th scope="row">configured at</th><td>${visible(action.location)}</td></tr>
          <tr><th scope="row">runs</th><td>${count(action.runs)}, of which ${count(action.failures)} failed</td></tr>
          ${action.next_run && html`<tr><th scope="row">runs next</th><td>${clock(action.next_run * 1e3)}</td></tr>`}
          <${RunRows} title="last run" run=${action.last} />
          ${action.last_failure !== null && html`<${RunRows} title="last failure" run=${action.last_failure} />`}
        </tbody>
      </table>
      ${!action.runs && html`<p class="hint">It has not run since the server started.</p>`}
      <p><a href=${href("log", { find: "29-0" })}>Log entries of actions</a></p>
    </${Aside}>
  `;
}

/** @param {{ title: string, run: any }} props */
function RunRows({ title, run }) {
  if (!run) return null;
  return html`
    <tr><th scope="row">${title}</th><td>${clock(run.began * 1e3)}, took ${duration(run.seconds)}</td></tr>
    <tr><th scope="row">cause</th><td>${visible(run.cause)}</td></tr>
    <tr><th scope="row">outcome</th><td>${visible(outcome(run))}</td></tr>
  `;
}
