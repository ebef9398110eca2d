// Entry point: loads the session, then draws the shell around the page of the URL.

import { html, render } from "./html.js";
import { LOGGED_OUT } from "./request.js";
import { loadSession } from "./session.js";
import { Shell } from "./shell.js";
import { LogOn } from "./connection_status.js";

const RETRY_MS = 3_000;
let isLoggedOut = false;
addEventListener(LOGGED_OUT, () => (isLoggedOut = true));
const root = /** @type {HTMLElement} */ (document.getElementById("app"));

async function start() {
  try {
    const session = await loadSession();
    root.replaceChildren();
    render(html`<${Shell} session=${session} />`, root);
  } catch (problem) {
    root.replaceChildren();
    render(html`<${Failed} reason=${/** @type {Error} */ (problem).message} />`, root);
    setTimeout(start, RETRY_MS);
  }
}

/** @param {{ reason: string }} props */
function Failed({ reason }) {
  return html`
    <main class="plain" role="alert">
      <h1>${document.title}</h1>
      <p>The console cannot start: ${reason}</p>
      ${isLoggedOut && html`<p><${LogOn} /></p>`}
      <p>It retries every few seconds. <a href="/amps">The tree of statistics</a> may be available.</p>
    </main>
  `;
}

start();
