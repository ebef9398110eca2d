// Dialogs: the browser's own, which keep the focus and close with Esc. And the one that everything asks
// for a confirmation with.

import { html, useEffect, useId, useRef, useState } from "./html.js";
import { visible } from "./format.js";
import { request, said } from "./request.js";

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
 * @typedef {object} Deed  what is to be done
 * @property {string} path   below /amps/administrator
 * @property {string} title  the question
 * @property {string} text   what will happen
 * @property {string} label  of the button that has it done
 * @property {boolean} [isGrave]  whether something is lost by it
 * @property {string[]} [parameters] names of what it needs to be told
 */

/** @type {(deed: Deed) => void} */
let open = () => {};

/** Ask for a confirmation, have it done, and show what the server says. @param {Deed} deed */
export function confirm(deed) {
  open(deed);
}

export function DialogHost() {
  const [deed, setDeed] = useState(/** @type {Deed | null} */ (null));
  useEffect(() => {
    open = setDeed;
  }, []);
  return deed && html`<${Confirmation} key=${deed.path} deed=${deed} close=${() => setDeed(null)} />`;
}

/** @param {{ deed: Deed, close: () => void }} props */
function Confirmation({ deed, close }) {
  const [answer, setAnswer] = useState(/** @type {{ text: string, isDone: boolean } | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLElement | null} */ (null));
  const act = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    const fields = /** @type {NodeListOf<HTMLInputElement>} */ (form.current?.querySelectorAll("input"));
    const parameters = new URLSearchParams([...(fields ?? [])].map((field) => [field.name, field.value]));
    setAnswer(await perform(deed.path, parameters));
    setBusy(false);
  };
  return html`
    <${Dialog} title=${deed.title} close=${close}>
      <p>${deed.text}</p>
      <p><code>POST ${deed.path}</code></p>
      <form ref=${form} onSubmit=${act}>
        ${deed.parameters?.map((name) => html`<label class="field">${visible(name)} <input name=${name} autocomplete="off" autofocus=${name === deed.parameters?.[0]} /></label>`)}
        <p role="status" class=${answer && !answer.isDone ? "bad" : "good"}>${answer?.text ?? ""}</p>
        <div class="buttons">
          <button type="button" onClick=${close} autofocus=${!deed.parameters?.length}>${answer ? "Close" : "Cancel"}</button>
          ${!answer?.isDone && html`<button class=${deed.isGrave ? "grave" : "main"} disabled=${isBusy}>${deed.label}</button>`}
        </div>
      </form>
    </${Dialog}>
  `;
}

/** @param {string} path @param {URLSearchParams} parameters */
async function perform(path, parameters) {
  try {
    const answer = await request(`${path}.json`, { method: "POST", body: parameters });
    if (!answer.ok) return { text: await said(answer), isDone: false };
    let found = await answer.json();
    while (typeof found === "object") found = Object.values(found)[0];
    return { text: String(found), isDone: true };
  } catch {
    return { text: "The server does not answer. Whether it was done is not known.", isDone: false };
  }
}
