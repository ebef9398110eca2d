// What the components of a page know of /amps, for as long as they look.
//
// While there is no connection, what was known stays on the page, which says since when it has heard
// nothing. Whoever does not see the page (a tab in the background) needs no connection: a browser has
// six for a host.

import { useEffect, useState } from "./html.js";
import { Watch } from "./watch.js";

const HIDDEN_PATIENCE = 30_000;

/** @type {Map<string, { watch: Watch, listeners: Set<() => void> }>} */
const shared = new Map();

/**
 * Watch a path of /amps, together with whoever else on the page does.
 * @param {string} path
 * @param {string} [parts] those below it that are wanted, with commas; all without it
 * @returns {{ tree: import("./tree.js").Tree, standing: import("./events.js").Standing }}
 */
export function useLive(path, parts = "") {
  const url = `${path}?watch=${parts}`;
  const [, setVersion] = useState(0);
  const entry = shared.get(url) ?? share(url);
  useEffect(() => {
    const listener = () => setVersion((version) => version + 1);
    const current = shared.get(url) ?? share(url);
    current.listeners.add(listener);
    listener();
    return () => {
      current.listeners.delete(listener);
      // a page that follows may want the same
      setTimeout(() => {
        if (current.listeners.size || shared.get(url) !== current) return;
        shared.delete(url);
        current.watch.close();
      });
    };
  }, [url]);
  return { tree: entry.watch.tree, standing: entry.watch.standing };
}

/** @param {string} url */
function share(url) {
  /** @type {Set<() => void>} */
  const listeners = new Set();
  const entry = { watch: new Watch(url, () => listeners.forEach((told) => told())), listeners };
  shared.set(url, entry);
  return entry;
}

/**
 * Be told when the page is out of sight for a while, and when it is seen again.
 * @param {(isSeen: boolean) => void} told
 * @returns {() => void} how to be told no more
 */
export function whenSeen(told) {
  let timer = 0;
  let wasSeen = true;
  const look = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") {
      timer = setTimeout(() => {
        wasSeen = false;
        told(false);
      }, HIDDEN_PATIENCE);
    } else if (!wasSeen) {
      wasSeen = true;
      told(true);
    }
  };
  // a page that is left may be kept by the browser, with its connections
  const leave = () => told((wasSeen = false));
  const come = (/** @type {PageTransitionEvent} */ event) => event.persisted && told((wasSeen = true));
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", leave);
  addEventListener("pageshow", come);
  return () => {
    document.removeEventListener("visibilitychange", look);
    removeEventListener("pagehide", leave);
    removeEventListener("pageshow", come);
  };
}

/** Close what is shared while nobody sees the page. Called once, by the shell. */
export function restWhenHidden() {
  return whenSeen((isSeen) => {
    for (const { watch } of shared.values()) isSeen ? watch.resume() : watch.close();
  });
}
