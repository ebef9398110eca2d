// Keyboard shortcuts of all pages.

import { html, useEffect } from "./html.js";
import { Dialog } from "./dialog.js";
import { PAGES } from "./pages.js";
import { href } from "./route.js";

const SEQUENCE_MS = 1_500;

/** @param {() => void} help called for `?` */
export function useKeys(help) {
  useEffect(() => {
    let prefixAt = 0;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (isTyping) {
        if (event.key === "Escape") target.blur();
        return;
      }
      const isSecond = Date.now() - prefixAt < SEQUENCE_MS;
      prefixAt = 0;
      const page = PAGES.find((entry) => entry.key === event.key);
      if (isSecond && page) location.hash = href(page.path);
      else if (event.key === "g") prefixAt = Date.now();
      else if (event.key === "?") help();
      else if (event.key === "/") {
        const search = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-search]"));
        search?.focus();
        search?.select();
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

const KEYS = [
  ["/", "search on this page"],
  ["\u2191 \u2193", "move in a table; also Page Up, Page Down, Home and End"],
  ["Enter", "show the row"],
  ["Esc", "close the panel or dialog"],
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
