// Small components that pages share.

import { html, useEffect, useRef, useState } from "./html.js";
import { count, counted, named, visible } from "./format.js";
import { href } from "./route.js";

/** The head of a page. @param {{ title: string, about?: any, children?: any }} props */
export function PageHead({ title, about, children }) {
  return html`
    <div class="page-head">
      <h1>${title}</h1>
      ${about && html`<p class="about">${about}</p>`}
      <div class="tools">${children}</div>
    </div>
  `;
}

const TYPING_DELAY_MS = 150;

/**
 * A search field; calls back when the user stops typing.
 * @param {{ label: string, value: string, onFind: (text: string) => void }} props
 */
export function Search({ label, value, onFind }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const type = (/** @type {string} */ typed) => {
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onFind(typed), TYPING_DELAY_MS);
  };
  return html`
    <input
      type="search"
      class="search"
      data-search
      aria-label=${label}
      placeholder=${`${label}  /`}
      value=${text}
      onInput=${(/** @type {any} */ event) => type(event.currentTarget.value)}
    />
  `;
}

/**
 * Shows the number of entries, and how many of them are found.
 * @param {{ found: number, total: number, what: string, refusal?: string }} props `refusal` is the reason why the number is unknown
 */
export function Found({ found, total, what, refusal = "" }) {
  let text = found === total ? counted(total, what) : `${count(found)} of ${counted(total, what)}`;
  if (refusal && !total) text = `${named(2, what)}: not shown`;
  return html`<span class="found" role="status">${text}</span>`;
}

/** A whole number that the server writes with a fraction of zero. */
const WHOLE_NUMBER = /^(-?\d+)\.0+$/;

/**
 * Shows all values of an entry, with the path of each; `leave` names those to omit.
 * @param {{ path: string, entry: Record<string, string>, leave?: string[] }} props
 */
export function Values({ path, entry, leave = [] }) {
  const names = Object.keys(entry).filter((name) => name !== "id" && !leave.includes(name));
  return html`
    <table class="values">
      <tbody>
        ${names.map((name) => html`
          <tr>
            <th scope="row"><a href=${`${path}/${name}`}>${name}</a></th>
            <td>${visible(entry[name].replace(WHOLE_NUMBER, "$1"))}</td>
          </tr>
        `)}
      </tbody>
    </table>
  `;
}

/**
 * The panel beside a table, with one entry in full.
 * @param {{ title: string, back: string, children?: any }} props `back` is the link that closes the panel
 */
export function Aside({ title, back, children }) {
  const head = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) location.hash = back;
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [back]);
  return html`
    <aside class="beside" aria-label=${title}>
      <div class="beside-head">
        <h2 ref=${head}>${title}</h2>
        <a class="close" href=${back} aria-label="Close">\u00d7</a>
      </div>
      ${children}
    </aside>
  `;
}

/** A labelled figure. @param {{ label: string, value: any, link?: string, tone?: string, about?: string }} props */
export function Figure({ label, value, link, tone = "", about = "" }) {
  return html`
    <div class=${`figure ${tone}`} title=${about || undefined}>
      <dt>${label}</dt>
      <dd>${link ? html`<a href=${link}>${value}</a>` : value}</dd>
    </div>
  `;
}

/** Tabs of a page, which can be linked to. @param {{ path: string, tabs: Record<string, string>, chosen: string }} props */
export function Tabs({ path, tabs, chosen }) {
  return html`
    <ul class="tabs">
      ${Object.entries(tabs).map(([name, label]) => html`
        <li><a href=${href(path, { tab: name })} aria-current=${name === chosen ? "true" : undefined}>${label}</a></li>
      `)}
    </ul>
  `;
}
