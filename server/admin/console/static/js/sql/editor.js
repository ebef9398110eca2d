// The field for a statement: names and words are completed as it is typed.

import { html, useEffect, useId, useRef, useState } from "../html.js";
import { visible } from "../format.js";
import { complete, loadTables } from "./words.js";

const NOTHING = { from: 0, offered: /** @type {string[]} */ ([]) };
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
  const [{ from, offered }, setOffer] = useState(NOTHING);
  const [active, setActive] = useState(-1);
  useEffect(() => {
    let isWanted = true;
    loadTables().then((found) => isWanted && setTables(found));
    return () => {
      isWanted = false;
    };
  }, []);

  const offer = (/** @type {string} */ text, isAsked = false) => {
    setOffer(complete(text, field.current?.selectionStart ?? text.length, tables, isAsked));
    setActive(isAsked ? 0 : -1);
  };
  const type = (/** @type {string} */ text) => {
    onChange(text);
    offer(text);
  };
  const take = (/** @type {string} */ name) => {
    const { current } = field;
    if (!current) return;
    current.setRangeText(name, from, current.selectionStart, "end"); // at once: the user goes on typing
    setOffer(NOTHING);
    onChange(current.value);
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key === "Enter") {
      setOffer(NOTHING);
      onRun();
    } else if (event.ctrlKey && event.key === " ") offer(value, true);
    else if (!offered.length) return;
    else if (event.key === "ArrowDown") setActive((active + 1) % offered.length);
    else if (event.key === "ArrowUp") setActive(active > 0 ? active - 1 : offered.length - 1);
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) take(offered[active]);
    else if (event.key === "Escape") setOffer(NOTHING);
    else return;
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
        aria-autocomplete="list"
        aria-controls=${`${id}-offered`}
        aria-activedescendant=${active >= 0 && active < offered.length ? `${id}-${active}` : undefined}
        aria-invalid=${Boolean(failed)}
        aria-describedby=${failed ? `${id}-error` : undefined}
        placeholder="SELECT symbol, sum(qty) FROM orders GROUP BY symbol"
        value=${value}
        onInput=${(/** @type {any} */ event) => type(event.currentTarget.value)}
        onKeyDown=${pressed}
        onBlur=${() => setOffer(NOTHING)}
      ></textarea>
      <ul id=${`${id}-offered`} class="offered" role="listbox" aria-label="Names and words" hidden=${!offered.length}>
        ${offered.map((name, at) => html`
          <li
            id=${`${id}-${at}`}
            role="option"
            aria-selected=${at === active}
            onMouseDown=${(/** @type {MouseEvent} */ event) => {
              event.preventDefault(); // the field keeps the focus
              take(name);
            }}
          >${visible(name)}</li>
        `)}
      </ul>
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
