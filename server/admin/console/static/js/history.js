// What values were within the last hour, and go on to be.

import { useEffect, useRef, useState } from "./html.js";
import { instant, moment } from "./format.js";
import { request } from "./request.js";

export const HOUR = 3_600_000;

/**
 * Points in time with the values of some lines, as uPlot takes them: seconds, then a list for each line.
 * @typedef {[number[], ...(number | null)[][]]} Points
 */

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {(tree: import("./tree.js").Tree) => string[]} leaves  paths whose values are added up
 * @property {(tree: import("./tree.js").Tree) => number | null} now
 * @property {number} [scale] what values of the past are multiplied with
 * @property {"sum" | "max"} [joined] what becomes of the values of several leaves; their sum unless it is said
 */

/**
 * The last hour of some lines, with what comes.
 * @param {import("./tree.js").Tree} tree
 * @param {Line[]} lines which stay the same
 * @returns {Points}
 */
export function useLastHour(tree, lines) {
  const points = useRef(/** @type {Map<number, (number | null)[]>} */ (new Map()));
  const [, setVersion] = useState(0);
  const isKnown = Boolean(tree.moment);
  useEffect(() => {
    if (!isKnown) return undefined;
    const given = new AbortController();
    loadAll(tree, lines, given.signal).then(
      (loaded) => {
        points.current = new Map([...loaded, ...points.current].sort(([one], [other]) => one - other));
        setVersion((version) => version + 1);
      },
      () => {}, // what comes is shown all the same
    );
    return () => given.abort();
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
 * The values of a leaf within the last hour.
 * @param {string} leaf
 * @param {AbortSignal} [signal]
 * @returns {Promise<[number, number][]>} seconds and values
 */
export async function loadLeaf(leaf, signal) {
  const answer = await request(`${leaf}.csv?t0=${moment(Date.now() - HOUR)}`, { signal });
  if (!answer.ok) return [];
  const lines = (await answer.text()).trim().split("\n").filter(Boolean);
  return lines.map((line) => {
    const [when, value] = line.split(",");
    return [instant(when) / 1e3, Number(value)];
  });
}
