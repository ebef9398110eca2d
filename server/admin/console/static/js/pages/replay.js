// Replays of a topic in the transaction log, from a given time on, at a given speed.

import { html } from "../html.js";
import { clock, instant, moment } from "../format.js";
import { useLive } from "../live.js";
import { PageHead } from "../parts.js";
import { useDraft } from "../query/draft.js";
import { Expression } from "../query/expression.js";
import { LogonForm, NoTransport, PhaseIndicator, TopicFields, topicOption, RunProblem } from "../query/parts.js";
import { Results } from "../query/results.js";
import { setCredentials } from "../query/run.js";
import { change } from "../route.js";

const SPEEDS = { "": "as fast as it goes", "0.1X": "a tenth", "1X": "as it was", "2X": "twice as fast", "10X": "ten times as fast", "100X": "a hundred times as fast", 10: "10 messages a second", 100: "100 messages a second" };
const DEFAULT_GAP = "5s";
const MINUTE = 60_000;
const SAMPLE = { c: "subscribe", bm: "0", o: "non_regex_topic,rate=100" };

/** @typedef {{ topic: string, regex: string, type: string, filter: string, from: string, to: string, speed: string, gap: string }} Replay */

/** What the URL asks for. @param {Record<string, string>} params @returns {Replay} */
function replayOf({ topic = "", regex = "", type = "json", filter = "", from = "", to = "", speed = "1X", gap = DEFAULT_GAP }) {
  return { topic, regex, type, filter, from, to, speed: speed === "full" ? "" : speed, gap: gap === "none" ? "" : gap };
}

/** @param {Replay} replay @returns {import("../query/run.js").Plan} */
function planOf({ topic, regex, type, filter, from, to, speed, gap }) {
  const rate = speed && `rate=${speed}${gap && `,rate_max_gap=${gap}`},`;
  const command = (/** @type {string} */ after) => {
    const bm = to ? `${after ? "(" : "["}${after || from || "0"}:${to})` : after || from || "0";
    return { c: "subscribe", t: topic, f: filter.trim(), bm, o: `${topicOption(regex)}${rate}timestamp` };
  };
  return { type, areMessages: true, ends: Boolean(to), command };
}

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  if (!session.queries) return html`<${PageHead} title="Replay" /><${NoTransport} />`;
  return html`<${Replays} params=${params} url=${session.queries} />`;
}

/** @param {{ params: Record<string, string>, url: string }} props */
function Replays({ params, url }) {
  const { draft, edit, topics, paths, run, isRunning, withResults, runCount, rerun } = useDraft(replayOf(params), url, planOf, SAMPLE, true);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const { speed, gap, ...others } = draft;
    change({ ...others, speed: speed || "full", gap: gap || "none", id: null }, { isStep: true });
    rerun();
  };
  return html`
    <${PageHead} title="Replay"><${PhaseIndicator} run=${run} word=${run ? wordOf(run) : undefined} /></${PageHead}>
    <form class="query" onSubmit=${submit}>
      <div class="fields">
        <${TopicFields} topics=${topics} topic=${draft.topic} type=${draft.type} regex=${draft.regex} onChange=${edit} />
        <${Moment} label="From" name="from" value=${draft.from} onChange=${(/** @type {string} */ from) => edit({ from })} />
        <${Moment} label="To (open if empty)" name="to" value=${draft.to} onChange=${(/** @type {string} */ to) => edit({ to })} />
      </div>
      <${Expression} label="Filter" kind="filter" value=${draft.filter} paths=${paths}
        onChange=${(/** @type {string} */ filter) => edit({ filter })} />
      <div class="fields">
        <label class="field">
          Speed
          <input name="speed" list="speeds" autocomplete="off" placeholder=${SPEEDS[""]} value=${draft.speed}
            title="a multiple of the original speed (2X), messages per second (100), or bytes per second (500KB)"
            onInput=${(/** @type {any} */ event) => edit({ speed: event.currentTarget.value.trim() })} />
        </label>
        <datalist id="speeds">
          ${Object.entries(SPEEDS).filter(([rate]) => rate).map(([rate, label]) => html`<option value=${rate}>${label}</option>`)}
        </datalist>
        <label class="field short">
          Maximum gap
          <input name="gap" autocomplete="off" placeholder="as it was" value=${draft.gap} title="maximum time without messages, as in 5s"
            onInput=${(/** @type {any} */ event) => edit({ gap: event.currentTarget.value.trim() })} />
        </label>
        <div class="buttons left">
          <button class="main">Replay</button>
          <button type="button" class="outlined" aria-pressed=${run?.isPaused ?? false} disabled=${!isRunning} onClick=${() => run?.setPaused(!run.isPaused)}>Pause</button>
          <button type="button" class="outlined" disabled=${!isRunning} onClick=${() => run?.stop()}>Stop</button>
        </div>
      </div>
    </form>
    <${RunProblem} run=${run} />
    ${run?.phase === "refused" &&
    html`<${LogonForm} reason=${run.reason} onLogon=${(/** @type {any} */ credentials) => {
      setCredentials(credentials);
      rerun();
    }} />`}
    ${withResults ? html`<${Results} key=${runCount} page="replay" run=${withResults} params=${params} what="messages" isPaused=${false} descending />` : run === null && html`<${Range} />`}
  `;
}

/** Shows the range of the transaction log. */
function Range() {
  const { tree } = useLive("/amps/instance/transaction_log");
  const log = "amps/instance/transaction_log";
  if (!tree.moment) return null;
  if (!tree.at(log)) return html`<p class="hint">This instance has no transaction log to replay.</p>`;
  const from = String(tree.at(`${log}/min_timestamp`) ?? "");
  const to = String(tree.at(`${log}/max_timestamp`) ?? "");
  return html`
    <p class="hint">
      Choose a topic of the transaction log and a start; the default is the oldest message.
      ${from && ` The log covers ${clock(from)} to ${clock(to)}.`}
    </p>
  `;
}

/** @param {import("../query/run.js").Run} run */
function wordOf(run) {
  if (run.phase !== "live" && run.phase !== "loading") return run.phase === "done" ? "Replayed" : undefined;
  if (run.isPaused) return "Paused";
  return run.isCaughtUp ? "Live: caught up with the log" : run.lastTime ? `Replaying ${clock(run.lastTime)}` : "Replaying";
}

/**
 * An input field for a local time; the URL and the server use UTC.
 * @param {{ label: string, name: string, value: string, onChange: (value: string) => void }} props
 */
function Moment({ label, name, value, onChange }) {
  const at = instant(value);
  const local = Number.isNaN(at) ? "" : new Date(at - new Date(at).getTimezoneOffset() * MINUTE).toISOString().slice(0, 19);
  const typed = (/** @type {string} */ text) => onChange(text ? `${moment(new Date(text).getTime())}Z` : "");
  return html`
    <label class="field">
      ${label}
      <input type="datetime-local" step="1" name=${name} value=${local} onInput=${(/** @type {any} */ event) => typed(event.currentTarget.value)} />
    </label>
  `;
}
