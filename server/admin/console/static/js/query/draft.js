// What is typed on the pages of queries and replays, and what runs of it: what is in the URL runs, and
// what is typed is not in there before it is run.

import { useEffect, useState } from "../html.js";
import { useTopics } from "./parts.js";
import { useRun } from "./run.js";
import { useSample } from "./sample.js";

/**
 * @template {{ topic: string, type: string }} Asked
 * @param {Asked} asked what the URL asks for
 * @param {string} url of the transport
 * @param {(asked: Asked) => import("./run.js").Plan} planOf
 * @param {import("../amps/messages.js").Header} command what shows some messages of a topic
 * @param {boolean} [areRecorded] only topics that the transaction log has
 */
export function useDraft(asked, url, planOf, command, areRecorded = false) {
  const [draft, setDraft] = useState(asked);
  const [times, setTimes] = useState(0);
  const topics = useTopics(areRecorded);
  const run = useRun(asked.topic ? planOf(asked) : null, url, [...Object.values(asked), times]);
  const known = topics.find((one) => one.topic === draft.topic && one.type === draft.type);
  const sample = useSample(url, asked.topic === draft.topic ? undefined : known, command);
  useEffect(() => setDraft(asked), Object.values(asked));
  return {
    draft,
    edit: (/** @type {Partial<Asked>} */ changes) => setDraft((before) => ({ ...before, ...changes })),
    topics,
    paths: run && asked.topic === draft.topic ? run.records.paths : sample,
    run,
    isRunning: run !== null && !run.isOver,
    withResults: run !== null && (run.phase !== "failed" || run.records.rows.size > 0) ? run : null,
    times,
    again: () => setTimes(times + 1),
  };
}
