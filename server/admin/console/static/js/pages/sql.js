// SQL: statements, their results, and subscriptions as they change. A statement in the URL is shown, and
// executed only when the user says so.

import { html, useState } from "../html.js";
import { Dialog } from "../dialog.js";
import { counted, visible } from "../format.js";
import { PageHead } from "../parts.js";
import { change } from "../route.js";
import { useRefusal } from "../session.js";
import { Editor } from "../sql/editor.js";
import { Results } from "../sql/results.js";
import { useStatement } from "../sql/run.js";
import { keepStatement, LastStatements } from "../sql/statements.js";

const EXPLAIN = "EXPLAIN ";
const WRITES = /\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|NOTIFY)\b/i;
const HAS_ROWS = /^(SELECT|EXPLAIN|SHOW)/;
const MAX_LINKED = 2_000;
const PATH = "/console/sql";

const PHASES = {
  running: { word: "Running", dot: "connecting" },
  live: { word: "Live", dot: "live" },
  waiting: { word: "More rows", dot: "" },
  done: { word: "Complete", dot: "" },
  failed: { word: "Failed", dot: "refused" },
  stopped: { word: "Stopped", dot: "" },
};

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const refusal = useRefusal(PATH, session);
  if (!session.sql) return html`<${PageHead} title="SQL" /><${NoSql} reason=${session.sql_refusal} />`;
  if (refusal) return html`<${PageHead} title="SQL" /><p class="notice" role="status">${refusal}</p>`;
  return html`<${Statements} params=${params} session=${session} />`;
}

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
function Statements({ params, session }) {
  const [text, setText] = useState(params.sql ?? "");
  const [asked, setAsked] = useState("");
  const { run, execute } = useStatement();
  const begin = (/** @type {string} */ statement, prefix = "") => {
    keepStatement(session.user, statement);
    change({ sql: statement.length <= MAX_LINKED ? statement : null, id: null, sort: null, order: null, find: null });
    execute(statement, prefix);
  };
  const submit = () => {
    if (!text.trim()) return;
    if (WRITES.test(text)) setAsked(text);
    else begin(text);
  };
  const tags = run?.tags.filter((tag) => !HAS_ROWS.test(tag)) ?? [];
  const isRunning = run !== null && !run.isOver;
  return html`
    <${PageHead} title="SQL"><${Standing} run=${run} /></${PageHead}>
    <form class="query" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      submit();
    }}>
      <${Editor} value=${text} failed=${run?.error ? run : null} onChange=${setText} onRun=${submit} />
      <div class="buttons left">
        <button class="main" title="Ctrl+Enter">Run</button>
        <button type="button" class="outlined" onClick=${() => text.trim() && begin(text, EXPLAIN)}>Explain</button>
        <button type="button" class="outlined" disabled=${!isRunning} onClick=${() => run?.stop()}>Stop</button>
        <${LastStatements} user=${session.user} onChoose=${setText} />
      </div>
    </form>
    ${tags.length > 0 && html`<p class="good" role="status">${visible(tags.join(", "))}</p>`}
    ${run && run.columns.length > 0
      ? html`<${Results} key=${run.prefix + run.text} run=${run} params=${params} />`
      : run === null && html`<p class="hint">Write a statement and run it: tables are the topics with records. SUBSCRIBE TO and the name of a topic shows changes as they come.</p>`}
    ${asked && html`<${WriteDialog} statement=${asked} close=${() => setAsked("")} execute=${() => {
      setAsked("");
      begin(asked);
    }} />`}
  `;
}

/** How a statement stands. @param {{ run: import("../sql/run.js").StatementRun | null }} props */
function Standing({ run }) {
  if (!run) return null;
  const { word, dot } = PHASES[run.phase];
  return html`<span class="standing" role="status"><span class=${`dot ${dot}`}></span>${word}, ${counted(run.count, "rows")}</span>`;
}

/**
 * Asks before messages are published.
 * @param {{ statement: string, close: () => void, execute: () => void }} props
 */
function WriteDialog({ statement, close, execute }) {
  return html`
    <${Dialog} title="Publish messages?" close=${close}>
      <p>This statement changes records. What it publishes cannot be taken back.</p>
      <pre class="body" tabindex="0" aria-label="Statement">${visible(statement)}</pre>
      <div class="buttons">
        <button type="button" onClick=${close} autofocus>Cancel</button>
        <button type="button" class="grave" onClick=${execute}>Publish</button>
      </div>
    </${Dialog}>
  `;
}

const LINES = `<Transport>
  <Name>sql</Name>
  <Type>tcp</Type>
  <InetAddr>localhost:5433</InetAddr>
  <Protocol>postgresql</Protocol>
</Transport>`;

/** How to get a transport for SQL. @param {{ reason: string }} props */
function NoSql({ reason }) {
  return html`
    <section class="offer">
      <h2>${reason ? "The console cannot use the transport for SQL" : "This instance has no transport for SQL"}</h2>
      ${reason && html`<p>${visible(reason)}</p>`}
      <p>
        Statements go through a transport of the protocol <code>postgresql</code>, with the authentication of <code>Admin</code>. Install its${" "}
        libraries with <code>pip install 'amperage[sql]'</code>, add it to the <code>Transports</code> of the configuration, and restart the server:
      </p>
      <pre class="body" tabindex="0" aria-label="Lines for the configuration">${LINES}</pre>
    </section>
  `;
}
