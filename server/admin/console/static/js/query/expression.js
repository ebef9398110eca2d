// An input field for expressions: completes the names of fields, and shows errors of the server's parser
// while the user types.

import { useCompletions } from "../completion.js";
import { html, useEffect, useId, useRef, useState } from "../html.js";
import { visible } from "../format.js";
import { readJson } from "../request.js";

const TYPING_DELAY_MS = 200;
const MAX_COMPLETIONS = 12;
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
  const fault = useFault(kind, value);
  const completions = useCompletions(id, "Fields", (name) => {
    const at = field.current?.selectionStart ?? value.length;
    const before = value.slice(0, at).replace(NAME, () => name);
    onChange(before + value.slice(at));
    setTimeout(() => {
      field.current?.focus();
      field.current?.setSelectionRange(before.length, before.length);
      completions.close();
    });
  });
  useEffect(() => {
    if (document.activeElement !== field.current) return;
    const typed = NAME.exec(value.slice(0, field.current?.selectionStart ?? 0))?.[0];
    completions.show(typed ? matchingPaths(paths, typed) : []);
  }, [value, paths]);

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
        aria-expanded=${completions.isOpen}
        ...${completions.attributes}
        aria-invalid=${Boolean(fault)}
        aria-describedby=${fault ? `${id}-fault` : undefined}
        placeholder=${placeholder}
        value=${value}
        onInput=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}
        onKeyDown=${completions.onKey}
      />
      ${completions.list}
      ${fault && html`<${FaultView} id=${`${id}-fault`} text=${value} fault=${fault} />`}
    </div>
  `;
}

/** Shows an error and its position. @param {{ id: string, text: string, fault: Fault }} props */
function FaultView({ id, text, fault }) {
  const at = Math.min(fault.position, text.length);
  return html`
    <div id=${id} class="fault" role="status">
      <p class="bad">${fault.message}, at character ${at + 1}</p>
      <code>${visible(text.slice(0, at))}<mark>${visible(text.slice(at, at + 1)) || "\u00a0"}</mark>${visible(text.slice(at + 1))}</code>
    </div>
  `;
}

/** @param {Iterable<string>} paths @param {string} typed */
function matchingPaths(paths, typed) {
  const wanted = typed.slice(1).toLowerCase();
  const found = [...paths].filter((path) => path !== typed && path.toLowerCase().includes(wanted));
  const begins = (/** @type {string} */ path) => Number(!path.toLowerCase().startsWith(`/${wanted}`));
  return found.sort((one, other) => begins(one) - begins(other)).slice(0, MAX_COMPLETIONS);
}

/** Return the error of an expression; null if it has none, or until the server has answered. @param {string} kind @param {string} text @returns {Fault | null} */
function useFault(kind, text) {
  const [fault, setFault] = useState(/** @type {Fault | null} */ (null));
  useEffect(() => {
    let isMounted = true;
    if (!text.trim()) {
      setFault(null);
      return undefined;
    }
    const timer = setTimeout(async () => {
      try {
        const result = await readJson(`/console/check.json?${new URLSearchParams({ kind, text })}`);
        if (isMounted) setFault(result.ok ? null : result);
      } catch {
        // the query itself will report it
      }
    }, TYPING_DELAY_MS);
    return () => {
      isMounted = false;
      clearTimeout(timer);
    };
  }, [kind, text]);
  return fault;
}
