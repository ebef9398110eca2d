// The field for a statement: names and words are completed as it is typed.

import { useCompletions } from "../completion.js";
import { html, useEffect, useId, useRef, useState } from "../html.js";
import { visible } from "../format.js";
import { complete, loadTables } from "./words.js";

const LINES = 7;

/**
 * @param {{
 *   value: string,
 *   failed: import("./run.js").StatementRun | null,
 *   onChange: (text: string) => void,
 *   onRun: () => void,
 * }} props `failed` is a statement that has an error
 */
export function Editor({ value, failed, onChange, onRun }) {
  const id = useId();
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [tables, setTables] = useState(/** @type {import("./words.js").KnownTable[]} */ ([]));
  const from = useRef(0);
  const completions = useCompletions(id, "Names and words", (name) => {
    const { current } = field;
    if (!current) return;
    current.setRangeText(name, from.current, current.selectionStart, "end"); // at once: the user goes on typing
    onChange(current.value);
  });
  useEffect(() => {
    let isWanted = true;
    loadTables().then((found) => isWanted && setTables(found));
    return () => {
      isWanted = false;
    };
  }, []);

  const offer = (/** @type {string} */ text, isAsked = false) => {
    const found = complete(text, field.current?.selectionStart ?? text.length, tables, isAsked);
    from.current = found.from;
    completions.show(found.offered, isAsked ? 0 : -1);
  };
  const onInput = (/** @type {string} */ text) => {
    onChange(text);
    offer(text);
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      completions.close();
      onRun();
    } else if (event.ctrlKey && event.key === " ") offer(value, true);
    else {
      completions.onKey(event);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return html`
    <div class="field expression">
      <label for=${`${id}-field`}>Statement</label>
      <textarea
        id=${`${id}-field`}
        ref=${field}
        name="statement"
        class="code statement"
        rows=${LINES}
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        ...${completions.attributes}
        aria-invalid=${Boolean(failed)}
        aria-describedby=${failed ? `${id}-error` : undefined}
        placeholder="SELECT symbol, sum(qty) FROM orders GROUP BY symbol"
        value=${value}
        onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)}
        onKeyDown=${onKey}
      ></textarea>
      ${completions.list}
      ${failed?.error && html`<${ErrorShown} id=${`${id}-error`} text=${failed.text} error=${failed.error} />`}
    </div>
  `;
}

/** What is wrong with a statement, and where. @param {{ id: string, text: string, error: import("./run.js").SqlError }} props */
function ErrorShown({ id, text, error }) {
  return html`
    <div id=${id} class="fault" role="alert">
      <p class="bad">${visible(error.message)} <small>(${error.code})</small></p>
      ${error.detail && html`<p>${visible(error.detail)}</p>`}
      ${error.hint && html`<p>${visible(error.hint)}</p>`}
      ${error.position ? html`<${Place} text=${text} position=${error.position} />` : null}
    </div>
  `;
}

const BESIDE = 60;

/** The line of a statement that an error is in. @param {{ text: string, position: number }} props */
function Place({ text, position }) {
  const at = Math.min([...text].slice(0, position - 1).join("").length, text.length); // it counts characters
  const line = text.slice(0, at).split("\n").length;
  const start = Math.max(text.lastIndexOf("\n", at - 1) + 1, at - BESIDE);
  const word = /^(?:[\w$]+|[^\n])?/u.exec(text.slice(at))?.[0] ?? "";
  const rest = text.slice(at + word.length).split("\n", 1)[0].slice(0, BESIDE);
  return html`
    <p>Line ${line}:</p>
    <code>${visible(text.slice(start, at))}<mark>${visible(word) || "\u00a0"}</mark>${visible(rest)}</code>
  `;
}
