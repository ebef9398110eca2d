// Components that the pages for queries and replays share, besides the rows.

import { html, useEffect, useState } from "../html.js";
import { visible } from "../format.js";
import { readJson } from "../request.js";

/** @typedef {{ topic: string, type: string }} Topic */

const TYPES = ["json", "fix", "nvfix", "xml", "binary", "bson", "msgpack", "bflat"];

/**
 * Return the topics of the configuration, with their message types.
 * @param {boolean} recordedOnly only topics of the transaction log
 * @returns {Topic[]}
 */
export function useTopics(recordedOnly = false) {
  const [topics, setTopics] = useState(/** @type {Topic[]} */ ([]));
  useEffect(() => {
    readJson(recordedOnly ? "/console/graph.json" : "/amps/instance/sow.json").then(
      (found) => setTopics(recordedOnly ? recordedOf(found) : topicsOf(found)),
      () => {}, // users can type names nevertheless
    );
  }, [recordedOnly]);
  return topics;
}

/** @param {any} found @returns {Topic[]} */
function topicsOf(found) {
  return found.amps.instance.sow.map((/** @type {any} */ one) => ({ topic: one.topic, type: one.message_type }));
}

/** @param {any} graph @returns {Topic[]} */
function recordedOf({ nodes, edges }) {
  const at = nodes.findIndex((/** @type {any} */ node) => node.kind === "transaction log");
  return edges
    .filter((/** @type {any} */ edge) => edge.source === at || edge.target === at)
    .map((/** @type {any} */ edge) => nodes[edge.source === at ? edge.target : edge.source])
    .filter((/** @type {any} */ node) => node.message_type)
    .map((/** @type {any} */ node) => ({ topic: node.name, type: node.message_type }));
}

/**
 * Return the option of a command for its topic: a literal name, unless it is a regular expression.
 * @param {string} regex
 */
export function topicOption(regex) {
  return regex ? "" : "non_regex_topic,";
}

/**
 * Input fields for a topic and its message type.
 * @param {{ topics: Topic[], topic: string, type: string, regex: string, onChange: (changes: Record<string, string>) => void }} props
 */
export function TopicFields({ topics, topic, type, regex, onChange }) {
  const typed = (/** @type {string} */ name) => {
    const known = topics.find((one) => one.topic === name);
    onChange(known ? { topic: name, type: known.type } : { topic: name });
  };
  const types = [...new Set([...topics.map((one) => one.type), ...TYPES])];
  return html`
    <label class="field">
      Topic
      <input name="topic" class="code" list="known-topics" required autocomplete="off" spellcheck=${false} value=${topic}
        onInput=${(/** @type {any} */ event) => typed(event.currentTarget.value)} />
    </label>
    <datalist id="known-topics">
      ${topics.map((one) => html`<option value=${one.topic}>${one.type}</option>`)}
    </datalist>
    <label class="check">
      <input name="regex" type="checkbox" checked=${Boolean(regex)}
        onChange=${(/** @type {any} */ event) => onChange({ regex: event.currentTarget.checked ? "1" : "" })} />
      Regular expression
    </label>
    <label class="field short">
      Message type
      <input name="type" list="known-types" required autocomplete="off" spellcheck=${false} value=${type}
        onInput=${(/** @type {any} */ event) => onChange({ type: event.currentTarget.value })} />
    </label>
    <datalist id="known-types">${types.map((one) => html`<option value=${one}></option>`)}</datalist>
  `;
}

const PHASES = {
  connecting: "Connecting",
  loading: "Loading",
  live: "Live",
  done: "Complete",
  failed: "Refused",
  refused: "Refused",
  away: "Away",
  stopped: "Stopped",
};
const DOTS = { connecting: "connecting", loading: "connecting", live: "live", away: "away", failed: "refused", refused: "refused" };

/** Shows the phase of a run. @param {{ run: import("./run.js").Run | null, word?: string }} props */
export function PhaseIndicator({ run, word }) {
  if (!run) return null;
  const dot = DOTS[/** @type {keyof typeof DOTS} */ (run.phase)] ?? "";
  return html`<span class="standing" role="status"><span class=${`dot ${dot}`}></span>${word ?? PHASES[run.phase]}</span>`;
}

/** Shows the problem of a run. @param {{ run: import("./run.js").Run | null }} props */
export function RunProblem({ run }) {
  if (run?.phase === "failed") return html`<p class="notice bad" role="alert">The server refuses the command: ${visible(run.reason)}</p>`;
  if (run?.phase !== "away") return null;
  return html`
    <p class="notice" role="alert">
      ${visible(run.reason)}. The page retries. ${run.records.rows.size > 0 && `The rows are from before.`}
    </p>
  `;
}

/**
 * Asks for a user and a password, which stay on this page.
 * @param {{ reason: string, onLogon: (credentials: import("../amps/client.js").Credentials) => void }} props
 */
export function LogonForm({ reason, onLogon }) {
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const { user, password } = event.currentTarget.elements;
    onLogon({ user: user.value, password: password.value });
  };
  return html`
    <form class="offer logon" onSubmit=${submit}>
      <h2>Log on for queries</h2>
      <p>The transport for queries refuses the logon: ${visible(reason)}</p>
      <label class="field">User <input name="user" autocomplete="username" required /></label>
      <label class="field">Password <input name="password" type="password" autocomplete="current-password" /></label>
      <div class="buttons left"><button class="main">Log on</button></div>
    </form>
  `;
}

const EXAMPLE = `<Transports>
  <Transport>
    <Name>queries</Name>
    <Type>tcp</Type>
    <InetAddr>9008</InetAddr>
    <Protocol>websocket</Protocol>
  </Transport>
</Transports>
<Admin>
  <InetAddr>8085</InetAddr>
  <SQLTransport>queries</SQLTransport>
</Admin>`;

/** Explains how to configure a transport for queries. */
export function NoTransport() {
  return html`
    <section class="offer">
      <h2>This instance has no transport for queries</h2>
      <p>
        Queries need a websocket transport. Add one to the configuration, or use an existing one, name it in <code>SQLTransport</code> of${" "}
        <code>Admin</code>, and restart the server:
      </p>
      <pre class="body" tabindex="0" aria-label="Lines for the configuration">${EXAMPLE}</pre>
    </section>
  `;
}
