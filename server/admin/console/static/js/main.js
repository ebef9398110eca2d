// Where it begins: the session is loaded, then the shell is drawn around the page that the URL names.

import { html, render } from "./html.js";
import { LOGGED_OUT } from "./request.js";
import { loadSession } from "./session.js";
import { Shell } from "./shell.js";
import { LogOn } from "./standing.js";

const RETRY = 3_000;
let isLoggedOut = false;
addEventListener(LOGGED_OUT, () => (isLoggedOut = true));
const root = /** @type {HTMLElement} */ (document.getElementById("app"));

async function begin() {
  try {
    const session = await loadSession();
    root.replaceChildren();
    render(html`<${Shell} session=${session} />`, root);
  } catch (problem) {
    root.replaceChildren();
    render(html`<${Failed} reason=${/** @type {Error} */ (problem).message} />`, root);
    setTimeout(begin, RETRY);
  }
}

/** @param {{ reason: string }} props */
function Failed({ reason }) {
  return html`
    <main class="plain" role="alert">
      <h1>${document.title}</h1>
      <p>The console cannot begin: ${reason}</p>
      ${isLoggedOut && html`<p><${LogOn} /></p>`}
      <p>It is tried again every few seconds. <a href="/amps">The tree of statistics</a> may be there.</p>
    </main>
  `;
}

begin();
