// Shows the status of connections: a dot, and a notice when something is wrong.

import { html, useEffect, useState } from "./html.js";
import { clock } from "./format.js";
import { LOGGED_OUT, readJson } from "./request.js";

const LABELS = {
  connecting: "Connecting",
  live: "Live",
  away: "Away",
  refused: "Refused",
  gone: "Gone",
};

/** @param {{ status: import("./events.js").ConnectionStatus }} props */
export function Dot({ status }) {
  return html`<span class="dot ${status.state}" role="img" aria-label=${LABELS[status.state]}></span>`;
}

/**
 * Shows a notice while the server is unavailable, and when it has returned with another version.
 * @param {{ status: import("./events.js").ConnectionStatus, session: import("./session.js").Session }} props
 */
export function ConnectionNotice({ status, session }) {
  const [isUpdated, setUpdated] = useState(false);
  const [isLoggedOut, setLoggedOut] = useState(false);
  useEffect(() => {
    const end = () => setLoggedOut(true);
    addEventListener(LOGGED_OUT, end);
    return () => removeEventListener(LOGGED_OUT, end);
  }, []);
  useEffect(() => {
    if (status.state !== "live") return;
    readJson("/console/session.json").then(
      (now) => {
        setUpdated(now.base !== session.base);
        setLoggedOut(now.user !== session.user);
      },
      () => {},
    );
  }, [status.state]);
  let text = null;
  if (isLoggedOut) {
    text = html`Your session has ended; the page shows earlier data. <${LogOn} />`;
  } else if (status.state === "away") {
    text = `The server has been unavailable since ${clock(status.since)}; the page shows earlier data, and retries.`;
  } else if (status.state === "refused") {
    text = html`The server refuses updates: ${status.reason} <${Reload} />`;
  } else if (isUpdated) {
    text = html`The server runs another version of this page. <${Reload} />`;
  }
  return html`<div role="status" class="notice" hidden=${!text}>${text}</div>`;
}

/** Links to the browser's logon, which returns to the current page. */
export function LogOn() {
  return html`<a class="button outlined" href=${`/console/logon${location.hash}`}>Log on</a>`;
}

function Reload() {
  return html`<button class="outlined" onClick=${() => location.reload()}>Reload</button>`;
}
