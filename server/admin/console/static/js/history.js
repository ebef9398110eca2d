// The values of the last hour, kept up to date.

import { useEffect, useRef, useState } from "./html.js";
import { instant, moment } from "./format.js";
import { request } from "./request.js";

export const HOUR = 3_600_000;

/**
 * Points of some lines in the format of uPlot: times in seconds, then the values of each line.
 * @typedef {[number[], ...(number | null)[][]]} Points
 */

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {(tree: import("./tree.js").Tree) => string[]} leaves  paths of the values to aggregate
 * @property {(tree: import("./tree.js").Tree) => number | null} now
 * @property {number} [scale] factor for past values
 * @property {"sum" | "max"} [joined] the aggregate of several leaves; default: their sum
 */

/**
 * Return the points of some lines in the last hour, including new values.
 * @param {import("./tree.js").Tree} tree
 * @param {Line[]} lines must not change
 * @returns {Points}
 */
export function useLastHour(tree, lines) {
  const points = useRef(/** @type {Map<number, (number | null)[]>} */ (new Map()));
  const [, setVersion] = useState(0);
  const isKnown = Boolean(tree.moment);
  useEffect(() => {
    if (!isKnown) return undefined;
    const controller = new AbortController();
    loadAll(tree, lines, controller.signal).then(
      (loaded) => {
        points.current = new Map([...loaded, ...points.current].sort(([one], [other]) => one - other));
        setVersion((version) => version + 1);
      },
      () => {}, // new values are shown nevertheless
    );
    return () => controller.abort();
  }, [isKnown]);
  if (tree.moment) {
    const now = instant(tree.moment);
    points.current.set(now / 1e3, lines.map((line) => line.now(tree)));
    for (const time of points.current.keys()) {
      if (time * 1e3 >= now - HOUR) break;
      points.current.delete(time);
    }
  }
  const times = [...points.current.keys()];
  const rows = [...points.current.values()];
  return [times, ...lines.map((_, index) => rows.map((row) => row[index]))];
}

/**
 * @param {import("./tree.js").Tree} tree
 * @param {Line[]} lines
 * @param {AbortSignal} signal
 */
async function loadAll(tree, lines, signal) {
  const found = await Promise.all(lines.map((line) => loadLine(tree, line, signal)));
  const times = [...new Set(found.flatMap((values) => [...values.keys()]))].sort((one, other) => one - other);
  return times.map((time) => /** @type {[number, (number | null)[]]} */ ([time, found.map((values) => values.get(time) ?? null)]));
}

/**
 * @param {import("./tree.js").Tree} tree
 * @param {Line} line
 * @param {AbortSignal} signal
 */
async function loadLine(tree, line, signal) {
  const pasts = await Promise.all(line.leaves(tree).map((leaf) => loadLeaf(leaf, signal)));
  /** @type {Map<number, number>} */
  const joined = new Map();
  for (const past of pasts) {
    for (const [time, value] of past) {
      const scaled = value * (line.scale ?? 1);
      const before = joined.get(time);
      if (before === undefined) joined.set(time, scaled);
      else joined.set(time, line.joined === "max" ? Math.max(before, scaled) : before + scaled);
    }
  }
  return joined;
}

/**
 * Load the values of a leaf in the last hour.
 * @param {string} leaf
 * @param {AbortSignal} [signal]
 * @returns {Promise<[number, number][]>} pairs of time in seconds and value
 */
export async function loadLeaf(leaf, signal) {
  const response = await request(`${leaf}.csv?t0=${moment(Date.now() - HOUR)}`, { signal });
  if (!response.ok) return [];
  const lines = (await response.text()).trim().split("\n").filter(Boolean);
  return lines.map((line) => {
    const [when, value] = line.split(",");
    return [instant(when) / 1e3, Number(value)];
  });
}
