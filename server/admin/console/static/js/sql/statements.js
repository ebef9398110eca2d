// The statements that were executed last, kept in the browser, for each user.

import { html, useState } from "../html.js";
import { visible } from "../format.js";

const MOST = 50;
const MAX_LENGTH = 10_000;
const MAX_SHOWN = 120;

/** @param {string} user */
function keyOf(user) {
  return `sql-statements ${user}`;
}

/** The statements, the last one first. @param {string} user @returns {string[]} */
export function lastStatements(user) {
  try {
    return JSON.parse(localStorage.getItem(keyOf(user)) ?? "[]");
  } catch {
    return [];
  }
}

/** @param {string} user @param {string} statement */
export function keepStatement(user, statement) {
  if (statement.length > MAX_LENGTH) return;
  keepAll(user, [statement, ...lastStatements(user).filter((one) => one !== statement)].slice(0, MOST));
}

/** @param {string} user @param {string[]} statements */
function keepAll(user, statements) {
  try {
    localStorage.setItem(keyOf(user), JSON.stringify(statements));
  } catch {
    // they are not kept then
  }
}

/** @param {{ user: string, onChoose: (statement: string) => void }} props */
export function LastStatements({ user, onChoose }) {
  const [isOpen, setOpen] = useState(false);
  const statements = isOpen ? lastStatements(user) : [];
  const choose = (/** @type {string} */ statement) => {
    setOpen(false);
    onChoose(statement);
  };
  return html`
    <details class="columns" open=${isOpen} onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && setOpen(false)} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
      <summary class="button outlined">History</summary>
      <fieldset class="statements">
        <legend class="unseen">Statements that were executed last</legend>
        ${isOpen && !statements.length && html`<p class="hint">Statements are kept in this browser when they are executed.</p>`}
        ${statements.map((one) => html`<button type="button" class="code" title=${one} onClick=${() => choose(one)}>${visible(one.slice(0, MAX_SHOWN))}</button>`)}
        ${statements.length > 0 && html`<button type="button" class="outlined" onClick=${() => {
          keepAll(user, []);
          setOpen(false);
        }}>Clear</button>`}
      </fieldset>
    </details>
  `;
}
