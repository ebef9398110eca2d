// A field for an expression: names of fields are completed, and the server's own parser says what is
// wrong, and where, as it is typed.

import { html, useEffect, useId, useRef, useState } from "../html.js";
import { visible } from "../format.js";
import { readJson } from "../request.js";

const TYPING = 200;
const MOST_OFFERED = 12;
const NAME = /\/[^\s'"()=<>!,*+]*$/;

/** @typedef {{ message: string, position: number }} Fault */

/**
 * @param {{
 *   label: string,
 *   kind: "filter" | "order_by",
 *   value: string,
 *   paths: Iterable<string>,
 *   placeholder?: string,
 *   onChange: (text: string) => void,
 * }} props
 */
export function Expression({ label, kind, value, paths, placeholder = "", onChange }) {
  const id = useId();
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [offered, setOffered] = useState(/** @type {string[]} */ ([]));
  const [active, setActive] = useState(-1);
  const fault = useFault(kind, value);

  const offer = () => {
    const typed = NAME.exec(value.slice(0, field.current?.selectionStart ?? 0))?.[0];
    setOffered(typed ? completions(paths, typed) : []);
    setActive(-1);
  };
  useEffect(() => {
    if (document.activeElement === field.current) offer();
  }, [value, paths]);
  const complete = (/** @type {string} */ name) => {
    const at = field.current?.selectionStart ?? value.length;
    const before = value.slice(0, at).replace(NAME, () => name);
    setOffered([]);
    onChange(before + value.slice(at));
    setTimeout(() => {
      field.current?.focus();
      field.current?.setSelectionRange(before.length, before.length);
      setOffered([]);
    });
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (!offered.length) return;
    if (event.key === "ArrowDown") setActive((active + 1) % offered.length);
    else if (event.key === "ArrowUp") setActive(active > 0 ? active - 1 : offered.length - 1);
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) complete(offered[active]);
    else if (event.key === "Escape") setOffered([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return html`
    <div class="field expression">
      <label for=${`${id}-field`}>${label}</label>
      <input
        id=${`${id}-field`}
        ref=${field}
        class="code"
        role="combobox"
        name=${kind}
        autocomplete="off"
        spellcheck=${false}
        aria-expanded=${offered.length > 0}
        aria-controls=${`${id}-offered`}
        aria-autocomplete="list"
        aria-activedescendant=${active >= 0 ? `${id}-${active}` : undefined}
        aria-invalid=${Boolean(fault)}
        aria-describedby=${fault ? `${id}-fault` : undefined}
        placeholder=${placeholder}
        value=${value}
        onInput=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}
        onKeyDown=${pressed}
        onBlur=${() => setOffered([])}
      />
      <ul id=${`${id}-offered`} class="offered" role="listbox" aria-label="Fields" hidden=${!offered.length}>
        ${offered.map((name, at) => html`
          <li
            id=${`${id}-${at}`}
            role="option"
            aria-selected=${at === active}
            onMouseDown=${(/** @type {MouseEvent} */ event) => {
              event.preventDefault(); // the field keeps the focus
              complete(name);
            }}
          >${visible(name)}</li>
        `)}
      </ul>
      ${fault && html`<${FaultShown} id=${`${id}-fault`} text=${value} fault=${fault} />`}
    </div>
  `;
}

/** What is wrong, and where. @param {{ id: string, text: string, fault: Fault }} props */
function FaultShown({ id, text, fault }) {
  const at = Math.min(fault.position, text.length);
  return html`
    <div id=${id} class="fault" role="status">
      <p class="bad">${fault.message}, at character ${at + 1}</p>
      <code>${visible(text.slice(0, at))}<mark>${visible(text.slice(at, at + 1)) || "\u00a0"}</mark>${visible(text.slice(at + 1))}</code>
    </div>
  `;
}

/** @param {Iterable<string>} paths @param {string} typed */
function completions(paths, typed) {
  const wanted = typed.slice(1).toLowerCase();
  const found = [...paths].filter((path) => path !== typed && path.toLowerCase().includes(wanted));
  const begins = (/** @type {string} */ path) => Number(!path.toLowerCase().startsWith(`/${wanted}`));
  return found.sort((one, other) => begins(one) - begins(other)).slice(0, MOST_OFFERED);
}

/** What the server has against a text; null as long as nothing is known. @param {string} kind @param {string} text @returns {Fault | null} */
function useFault(kind, text) {
  const [fault, setFault] = useState(/** @type {Fault | null} */ (null));
  useEffect(() => {
    let isWanted = true;
    if (!text.trim()) {
      setFault(null);
      return undefined;
    }
    const timer = setTimeout(async () => {
      try {
        const found = await readJson(`/console/check.json?${new URLSearchParams({ kind, text })}`);
        if (isWanted) setFault(found.ok ? null : found);
      } catch {
        // the server says it when the query is run
      }
    }, TYPING);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [kind, text]);
  return fault;
}
