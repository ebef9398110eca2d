// What of a table is in the URL, so that it can be linked to, and what is not.

import { useMemo, useState } from "../html.js";
import { change } from "../route.js";

const FIRST_COUNT = 60;

/**
 * @param {Record<string, string>} params of the page
 * @param {{ sort: string, descending?: boolean }} begin how it is sorted at first
 */
export function useTableState(params, begin) {
  const [seen, setSeen] = useState({ first: 0, count: FIRST_COUNT });
  const [isPaused, setPaused] = useState(false);
  const sort = params.sort ?? begin.sort;
  const descending = params.sort ? params.order === "desc" : Boolean(begin.descending);
  const wanted = useMemo(
    () => ({ find: params.find ?? "", sort, descending, ...seen, selected: params.id ?? "", isPaused }),
    [params.find, sort, descending, seen, params.id, isPaused],
  );
  return {
    wanted,
    setPaused,
    props: {
      sort,
      descending,
      selected: params.id ?? "",
      onSort: (/** @type {string} */ key, /** @type {boolean} */ down) =>
        change({ sort: key, order: down ? "desc" : "asc" }),
      onOpen: (/** @type {string} */ id) => change({ id }, { isStep: true }),
      onWindow: (/** @type {number} */ first, /** @type {number} */ count) =>
        setSeen((before) => (before.first === first && before.count === count ? before : { first, count })),
    },
  };
}
