// The state of a table: in the URL, if it can be linked to, or in the component.

import { useMemo, useState } from "../html.js";
import { change } from "../route.js";

const FIRST_COUNT = 60;

/**
 * @param {Record<string, string>} params of the page
 * @param {{ sort: string, descending?: boolean }} initial the initial order
 */
export function useTableState(params, initial) {
  const [rowWindow, setRowWindow] = useState({ first: 0, count: FIRST_COUNT });
  const [isPaused, setPaused] = useState(false);
  const sort = params.sort ?? initial.sort;
  const descending = params.sort ? params.order === "desc" : Boolean(initial.descending);
  const wanted = useMemo(
    () => ({ find: params.find ?? "", sort, descending, ...rowWindow, selected: params.id ?? "", isPaused }),
    [params.find, sort, descending, rowWindow, params.id, isPaused],
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
        setRowWindow((before) => (before.first === first && before.count === count ? before : { first, count })),
    },
  };
}
