// How connections stand, for people: a dot, and a line when something is wrong.

import { html, useEffect, useState } from "./html.js";
import { clock } from "./format.js";
import { LOGGED_OUT, readJson } from "./request.js";

const WORDS = {
  connecting: "Connecting",
  live: "Live",
  away: "Away",
  refused: "Refused",
  gone: "Gone",
};

/** @param {{ standing: import("./events.js").Standing }} props */
export function Dot({ standing }) {
  return html`<span class="dot ${standing.state}" role="img" aria-label=${WORDS[standing.state]}></span>`;
}

/**
 * Says so while the server is away, and when one of another version has come back.
 * @param {{ standing: import("./events.js").Standing, session: import("./session.js").Session }} props
 */
export function ConnectionNotice({ standing, session }) {
  const [isUpdated, setUpdated] = useState(false);
  const [isLoggedOut, setLoggedOut] = useState(false);
  useEffect(() => {
    const end = () => setLoggedOut(true);
    addEventListener(LOGGED_OUT, end);
    return () => removeEventListener(LOGGED_OUT, end);
  }, []);
  useEffect(() => {
    if (standing.state !== "live") return;
    readJson("/console/session.json").then(
      (now) => {
        setUpdated(now.base !== session.base);
        setLoggedOut(now.user !== session.user);
      },
      () => {},
    );
  }, [standing.state]);
  let text = null;
  if (isLoggedOut) {
    text = html`Your session has ended; what is shown is from before. <${LogOn} />`;
  } else if (standing.state === "away") {
    text = `The server has been away since ${clock(standing.since)}; what is shown is from before. It is tried again and again.`;
  } else if (standing.state === "refused") {
    text = html`The server refuses to tell what happens: ${standing.reason} <${Reload} />`;
  } else if (isUpdated) {
    text = html`The server runs another version of this page. <${Reload} />`;
  }
  return html`<div role="status" class="notice" hidden=${!text}>${text}</div>`;
}

/** Leads through the browser's own way to log on, and back to where one is. */
export function LogOn() {
  return html`<a class="button outlined" href=${`/console/logon${location.hash}`}>Log on</a>`;
}

function Reload() {
  return html`<button class="outlined" onClick=${() => location.reload()}>Reload</button>`;
}
