// Live data of /amps for the components of a page, over one shared connection per URL.
//
// Without a connection the last data stay on the page, with the time of the disconnect. A page in a
// background tab needs no connection: a browser has six for a host.

import { useEffect, useState } from "./html.js";
import { Watch } from "./watch.js";

const HIDDEN_DELAY_MS = 30_000;

/** @type {Map<string, { watch: Watch, listeners: Set<() => void> }>} */
const shared = new Map();

/**
 * Watch a path of /amps; components with the same URL share the connection.
 * @param {string} path
 * @param {string} [parts] comma-separated names of the wanted children; all if empty
 * @returns {{ tree: import("./tree.js").Tree, status: import("./events.js").ConnectionStatus }}
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
      // the next page may watch the same URL
      setTimeout(() => {
        if (current.listeners.size || shared.get(url) !== current) return;
        shared.delete(url);
        current.watch.close();
      });
    };
  }, [url]);
  return { tree: entry.watch.tree, status: entry.watch.status };
}

/** @param {string} url */
function share(url) {
  /** @type {Set<() => void>} */
  const listeners = new Set();
  const entry = { watch: new Watch(url, () => listeners.forEach((listener) => listener())), listeners };
  shared.set(url, entry);
  return entry;
}

/**
 * Call back when the page has been hidden for a while, and when it is visible again.
 * @param {(isVisible: boolean) => void} callback
 * @returns {() => void} removes the callback
 */
export function onVisibility(callback) {
  let timer = 0;
  let wasVisible = true;
  const onChange = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") {
      timer = setTimeout(() => {
        wasVisible = false;
        callback(false);
      }, HIDDEN_DELAY_MS);
    } else if (!wasVisible) {
      wasVisible = true;
      callback(true);
    }
  };
  // the browser may cache a page after navigation, with its connections
  const onHide = () => callback((wasVisible = false));
  const onShow = (/** @type {PageTransitionEvent} */ event) => event.persisted && callback((wasVisible = true));
  document.addEventListener("visibilitychange", onChange);
  addEventListener("pagehide", onHide);
  addEventListener("pageshow", onShow);
  return () => {
    document.removeEventListener("visibilitychange", onChange);
    removeEventListener("pagehide", onHide);
    removeEventListener("pageshow", onShow);
  };
}

/** Close the shared connections while the page is hidden. Called once, by the shell. */
export function pauseWhenHidden() {
  return onVisibility((isVisible) => {
    for (const { watch } of shared.values()) isVisible ? watch.resume() : watch.close();
  });
}
