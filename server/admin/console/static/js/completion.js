// Completions of a text field: a list below it, from which the arrow keys, Enter, Tab and the mouse select.

import { html, useState } from "./html.js";
import { visible } from "./format.js";

/**
 * The completions of one field.
 * @param {string} id of the field; those of the list derive from it
 * @param {string} label of the list
 * @param {(name: string) => void} insert puts the selected completion into the field
 */
export function useCompletions(id, label, insert) {
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  const [active, setActive] = useState(-1);

  /** Show completions. @param {string[]} offered @param {number} selected index of the one that Enter inserts; -1 for none */
  const show = (offered, selected = -1) => {
    setNames(offered);
    setActive(selected);
  };
  const close = () => setNames([]);
  const select = (/** @type {string} */ name) => {
    close();
    insert(name);
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!names.length) return;
    if (event.key === "ArrowDown") setActive((active + 1) % names.length);
    else if (event.key === "ArrowUp") setActive(active > 0 ? active - 1 : names.length - 1);
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) select(names[active]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const attributes = {
    "aria-autocomplete": "list",
    "aria-controls": `${id}-offered`,
    "aria-activedescendant": active >= 0 && active < names.length ? `${id}-${active}` : undefined,
    onBlur: close,
  };
  const list = html`
    <ul id=${`${id}-offered`} class="offered" role="listbox" aria-label=${label} hidden=${!names.length}>
      ${names.map((name, at) => html`
        <li
          id=${`${id}-${at}`}
          role="option"
          aria-selected=${at === active}
          onMouseDown=${(/** @type {MouseEvent} */ event) => {
            event.preventDefault(); // keep the focus on the field
            select(name);
          }}
        >${visible(name)}</li>
      `)}
    </ul>
  `;
  return { isOpen: names.length > 0, show, close, onKey, attributes, list };
}
