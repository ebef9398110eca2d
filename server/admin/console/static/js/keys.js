// What keys do, wherever one is.

import { html, useEffect } from "./html.js";
import { Dialog } from "./dialog.js";
import { PAGES } from "./pages.js";
import { href } from "./route.js";

const SEQUENCE = 1_500;

/** @param {() => void} help called for `?` */
export function useKeys(help) {
  useEffect(() => {
    let wentAt = 0;
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (isTyping) {
        if (event.key === "Escape") target.blur();
        return;
      }
      const isSecond = Date.now() - wentAt < SEQUENCE;
      wentAt = 0;
      const page = PAGES.find((one) => one.key === event.key);
      if (isSecond && page) location.hash = href(page.path);
      else if (event.key === "g") wentAt = Date.now();
      else if (event.key === "?") help();
      else if (event.key === "/") {
        const search = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-search]"));
        search?.focus();
        search?.select();
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

const KEYS = [
  ["/", "search on this page"],
  ["\u2191 \u2193", "go through a table; Page Up, Page Down, Home and End, too"],
  ["Enter", "show the row"],
  ["Esc", "leave what is open"],
  ["?", "this list"],
];

/** @param {{ close: () => void }} props */
export function HelpDialog({ close }) {
  return html`
    <${Dialog} title="Keys" close=${close}>
      <dl class="keys">
        ${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}
        ${PAGES.map(
          (page) => html`<dt><kbd>g</kbd> <kbd>${page.key}</kbd></dt><dd>${page.title}</dd>`,
        )}
      </dl>
      <div class="buttons"><button onClick=${close}>Close</button></div>
    </${Dialog}>
  `;
}
