// The last lines of the server's log, and new ones: by level, by text, by the id of the message.

import { html, useEffect, useRef, useState } from "../html.js";
import { Events } from "../events.js";
import { clock, visible } from "../format.js";
import { onVisibility } from "../live.js";
import { Found, PageHead, Search } from "../parts.js";
import { change } from "../route.js";

const MAX_LINES = 2_000;
const LEVELS = ["info", "warning", "error", "critical", "emergency"];

/** @typedef {{ number: number, level: string, text: string }} LogEntry */

/** @param {{ params: Record<string, string> }} props */
export function Page({ params }) {
  const { entries, status } = useLog();
  const problem = status ? problemOf(status) : "";
  const [isFollowing, setFollowing] = useState(true);
  const lowest = Math.max(0, LEVELS.indexOf(params.level ?? ""));
  const find = (params.find ?? "").toLowerCase();
  const shown = entries.filter(
    ({ level, text }) => LEVELS.indexOf(level) >= lowest && text.toLowerCase().includes(find),
  );
  return html`
    <${PageHead} title="Log">
      <${Search} label="Find lines" value=${params.find ?? ""} onFind=${(/** @type {string} */ text) => change({ find: text })} />
      <label>
        <span class="unseen">Level</span>
        <select value=${LEVELS[lowest]} onChange=${(/** @type {any} */ event) => change({ level: event.currentTarget.value })}>
          ${LEVELS.map((level, index) => html`<option value=${level}>${level}${index < LEVELS.length - 1 ? " and above" : ""}</option>`)}
        </select>
      </label>
      <button class="outlined" aria-pressed=${isFollowing} onClick=${() => setFollowing(!isFollowing)}>Follow</button>
      <${Found} found=${shown.length} total=${entries.length} what="lines" />
    </${PageHead}>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${(entries.length > 0 || status?.state === "live") &&
    html`<${Lines} entries=${shown} isFollowing=${isFollowing} onScrollUp=${() => setFollowing(false)} isFound=${Boolean(find || lowest)} />`}
  `;
}

/** @param {import("../events.js").ConnectionStatus} status */
function problemOf({ state, reason, since }) {
  if (state === "refused") return reason;
  if (state === "gone") return "This instance keeps no lines of its log for the console.";
  return state === "away" ? `The lines end at ${clock(since)}, when the connection was lost.` : "";
}

/**
 * Shows the lines; scrolls to the last one while following.
 * @param {{ entries: LogEntry[], isFollowing: boolean, onScrollUp: () => void, isFound: boolean }} props
 */
function Lines({ entries, isFollowing, onScrollUp, isFound }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const last = entries.length ? entries[entries.length - 1].number : 0;
  useEffect(() => {
    if (isFollowing && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [isFollowing, last, entries.length]);
  const onWheel = (/** @type {WheelEvent} */ event) => event.deltaY < 0 && onScrollUp();
  if (!entries.length) {
    return html`<p class="hint">${isFound ? "No line matches." : "Nothing has been logged since the server started."}</p>`;
  }
  return html`
    <ol class="log" ref=${box} tabindex="0" aria-label="Lines of the log" onWheel=${onWheel}>
      ${entries.map((entry) => html`<${Entry} key=${entry.number} entry=${entry} />`)}
    </ol>
  `;
}

const PARTS = /^(\S+) \[(\d+)\] (\w+): (\S+) ([^]*)$/;

/** @param {{ entry: LogEntry }} props */
function Entry({ entry }) {
  const [, when, , level, id, text] = PARTS.exec(entry.text) ?? [];
  if (!id) return html`<li>${visible(entry.text)}</li>`;
  return html`
    <li class=${`level-${level}`}>
      <time datetime=${when}>${when.slice(11, 23)}</time>
      <span class="level">${level}</span>
      <a class="id" href=${`#/log?find=${encodeURIComponent(id)}`} title=${`${when}: find all lines with this id`}>${id}</a>
      <span class="text">${visible(text)}</span>
    </li>
  `;
}

/**
 * Return the log lines that the server has kept, and new ones.
 * @returns {{ entries: LogEntry[], status: import("../events.js").ConnectionStatus | null }}
 */
function useLog() {
  const [entries, setEntries] = useState(/** @type {LogEntry[]} */ ([]));
  const [status, setStatus] = useState(/** @type {import("../events.js").ConnectionStatus | null} */ (null));
  useEffect(() => {
    const events = new Events(
      "/console/log",
      ({ name, data }) => {
        if (name === "entries") setEntries((known) => appended(known, JSON.parse(data)));
      },
      () => setStatus(events.status),
    );
    const stopListening = onVisibility((isVisible) => (isVisible ? events.open() : events.close()));
    return () => {
      stopListening();
      events.close();
    };
  }, []);
  return { entries, status };
}

/** Append lines; a restarted server counts from 1. @param {LogEntry[]} known @param {LogEntry[]} added */
function appended(known, added) {
  if (!added.length) return known;
  const continues = known.length > 0 && added[0].number > known[known.length - 1].number;
  return continues ? [...known, ...added].slice(-MAX_LINES) : added.slice(-MAX_LINES);
}
