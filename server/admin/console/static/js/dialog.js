// Dialogs, as elements of the browser, which trap the focus and close with Esc; and the confirmation of
// operations.

import { html, useEffect, useId, useRef, useState } from "./html.js";
import { visible } from "./format.js";
import { errorText, request } from "./request.js";

/** @param {{ title: string, close: () => void, children?: any }} props */
export function Dialog({ title, close, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    dialog.current?.showModal();
    return () => before?.focus();
  }, []);
  return html`
    <dialog ref=${dialog} aria-labelledby=${id} onClose=${close}>
      <h2 id=${id}>${title}</h2>
      ${children}
    </dialog>
  `;
}

/**
 * @typedef {object} Operation  an administrative operation
 * @property {string} path   below /amps/administrator
 * @property {string} title  the question
 * @property {string} text   the effect
 * @property {string} label  of the button
 * @property {boolean} [isDestructive]  whether it may lose data or connections
 * @property {string} [unless] the reason why it is not possible at the moment
 * @property {string[]} [parameters] names of the parameters to ask for
 */

/** @type {(operation: Operation) => void} */
let open = () => {};

/** Ask for a confirmation, execute the operation, and show the response of the server. @param {Operation} operation */
export function confirm(operation) {
  open(operation);
}

export function DialogHost() {
  const [operation, setOperation] = useState(/** @type {Operation | null} */ (null));
  useEffect(() => {
    open = setOperation;
  }, []);
  return operation && html`<${Confirmation} key=${operation.path} operation=${operation} close=${() => setOperation(null)} />`;
}

/** @param {{ operation: Operation, close: () => void }} props */
function Confirmation({ operation, close }) {
  const [result, setResult] = useState(/** @type {{ text: string, isDone: boolean } | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLElement | null} */ (null));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    const fields = /** @type {NodeListOf<HTMLInputElement>} */ (form.current?.querySelectorAll("input"));
    const parameters = new URLSearchParams([...(fields ?? [])].map((field) => [field.name, field.value]));
    setResult(await perform(operation.path, parameters));
    setBusy(false);
  };
  return html`
    <${Dialog} title=${operation.title} close=${close}>
      <p>${operation.text}</p>
      <p><code>POST ${operation.path}</code></p>
      <form ref=${form} onSubmit=${submit}>
        ${operation.parameters?.map((name) => html`<label class="field">${visible(name)} <input name=${name} autocomplete="off" autofocus=${!operation.isDestructive && name === operation.parameters?.[0]} /></label>`)}
        <p role="status" class=${result && !result.isDone ? "bad" : "good"}>${result?.text ?? ""}</p>
        <div class="buttons">
          <button type="button" onClick=${close} autofocus=${operation.isDestructive || !operation.parameters?.length}>${result ? "Close" : "Cancel"}</button>
          ${!result?.isDone && html`<button class=${operation.isDestructive ? "grave" : "main"} disabled=${isBusy}>${operation.label}</button>`}
        </div>
      </form>
    </${Dialog}>
  `;
}

/** @param {string} path @param {URLSearchParams} parameters */
async function perform(path, parameters) {
  try {
    const response = await request(`${path}.json`, { method: "POST", body: parameters });
    if (!response.ok) return { text: await errorText(response), isDone: false };
    let result = await response.json();
    while (typeof result === "object") result = Object.values(result)[0];
    return { text: String(result), isDone: true };
  } catch {
    return { text: "The server does not answer. It is unknown whether the operation was executed.", isDone: false };
  }
}
