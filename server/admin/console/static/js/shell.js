// The frame of every page: navigation, connection status, theme, keys.

import { Guard, html, useEffect, useRef, useState } from "./html.js";
import { DialogHost } from "./dialog.js";
import { uptime } from "./format.js";
import { HelpDialog, useKeys } from "./keys.js";
import { pauseWhenHidden, useLive } from "./live.js";
import { PAGES } from "./pages.js";
import { href, useRoute } from "./route.js";
import { ConnectionNotice, Dot } from "./connection_status.js";

/** @param {{ session: import("./session.js").Session }} props */
export function Shell({ session }) {
  const route = useRoute();
  const entry = PAGES.find((page) => page.path === route.path);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const { tree, status } = useLive("/amps/instance", "api");
  useKeys(() => setHelpOpen(true));
  useEffect(() => pauseWhenHidden(), []);
  useEffect(() => {
    document.title = `${entry?.title ?? "Not found"} \u00b7 ${session.name}`;
    setMenuOpen(false);
  }, [route.path]);

  return html`
    <button class="skip" onClick=${() => main.current?.focus()}>Skip to the content</button>
    <header class="top">
      <a class="brand" href=${href("overview")}>
        <span class="mark" aria-hidden="true"></span>
        <span class="names">
          <strong>${session.name}</strong>
          ${session.environment && html`<small>${session.environment}</small>`}
        </span>
      </a>
      <button
        class="menu"
        aria-expanded=${isMenuOpen}
        aria-controls="navigation"
        onClick=${() => setMenuOpen(!isMenuOpen)}
      >
        Menu
      </button>
    </header>
    <nav id="navigation" class=${isMenuOpen ? "side open" : "side"} aria-label="Pages">
      <${Navigation} path=${route.path} />
      <div class="foot">
        <p class="standing">
          <${Dot} status=${status} />
          ${status.state === "live"
            ? html`up ${uptime(tree.at("amps/instance/uptime"))}`
            : "not connected"}
        </p>
        ${session.user && html`<p>Logged on as ${session.user}</p>`}
        <p>Amperage ${session.version}</p>
        <p class="foot-buttons">
          <${ThemeSwitch} />
          <button class="quiet" onClick=${() => setHelpOpen(true)}>Keys</button>
          <a href="/amps">REST</a>
        </p>
      </div>
    </nav>
    <main id="main" tabindex="-1" ref=${main}>
      <${ConnectionNotice} status=${status} session=${session} />
      ${entry
        ? html`<${Loaded} key=${entry.path} entry=${entry} params=${route.params} session=${session} />`
        : html`<h1>Not found</h1><p>There is no page <code>${route.path}</code>.</p>`}
    </main>
    <${DialogHost} />
    ${isHelpOpen && html`<${HelpDialog} close=${() => setHelpOpen(false)} />`}
  `;
}

/** @param {{ path: string }} props */
function Navigation({ path }) {
  const groups = [...new Set(PAGES.map((page) => page.group))];
  return groups.map(
    (group) => html`
      <div class="group">
        ${group && html`<h2>${group}</h2>`}
        <ul>
          ${PAGES.filter((page) => page.group === group).map(
            (page) => html`
              <li>
                <a href=${href(page.path)} aria-current=${page.path === path ? "page" : undefined}>
                  ${page.title}
                </a>
              </li>
            `,
          )}
        </ul>
      </div>
    `,
  );
}

/**
 * A page, whose module is loaded when it is first shown.
 * @param {{ entry: import("./pages.js").PageEntry, params: object, session: object }} props
 */
function Loaded({ entry, params, session }) {
  const [Page, setPage] = useState(/** @type {Function | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    entry.load().then(
      (module) => setPage(() => module.Page),
      () => setProblem("It could not be loaded: the server is unavailable, or has been updated."),
    );
  }, [entry]);
  if (Page) {
    return html`<${Guard} instead=${(/** @type {unknown} */ error) => html`<${DrawError} title=${entry.title} error=${error} />`}>
      <${Page} params=${params} session=${session} />
    </${Guard}>`;
  }
  return html`
    <h1>${entry.title}</h1>
    ${problem &&
    html`<p role="alert">${problem} <button onClick=${() => location.reload()}>Reload</button></p>`}
  `;
}

/** Replaces a page that cannot be drawn; the others still work. @param {{ title: string, error: unknown }} props */
function DrawError({ title, error }) {
  return html`
    <h1>${title}</h1>
    <p class="notice bad" role="alert">
      This page cannot be drawn: ${String(error)} ${" "}
      <button class="outlined" onClick=${() => location.reload()}>Reload</button>
    </p>
  `;
}

const THEMES = { "": "System", light: "Light", dark: "Dark" };

function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (/** @type {string} */ chosen) => {
    setTheme(chosen);
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("theme", chosen);
    } catch {
      // the choice lasts until the page is closed
    }
    dispatchEvent(new Event("themechange"));
  };
  return html`
    <label>
      <span class="unseen">Theme</span>
      <select value=${theme} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
        ${Object.entries(THEMES).map(([name, label]) => html`<option value=${name}>${label}</option>`)}
      </select>
    </label>
  `;
}
