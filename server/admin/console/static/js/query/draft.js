// The form of queries and replays, and the run of the last submitted one. The URL has the submitted
// form; edits reach it when they are submitted.

import { useEffect, useState } from "../html.js";
import { useTopics } from "./parts.js";
import { useRun } from "./run.js";
import { useSample } from "./sample.js";

/**
 * @template {{ topic: string, type: string }} Form
 * @param {Form} submitted the form in the URL
 * @param {string} url of the transport
 * @param {(form: Form) => import("./run.js").Plan} planOf
 * @param {import("../amps/messages.js").Header} command requests some messages of a topic
 * @param {boolean} [recordedOnly] only topics of the transaction log
 */
export function useDraft(submitted, url, planOf, command, recordedOnly = false) {
  const [draft, setDraft] = useState(submitted);
  const [runCount, setRunCount] = useState(0);
  const topics = useTopics(recordedOnly);
  const run = useRun(submitted.topic ? planOf(submitted) : null, url, [...Object.values(submitted), runCount]);
  const known = topics.find((one) => one.topic === draft.topic && one.type === draft.type);
  const sample = useSample(url, submitted.topic === draft.topic ? undefined : known, command);
  useEffect(() => setDraft(submitted), Object.values(submitted));
  return {
    draft,
    edit: (/** @type {Partial<Form>} */ changes) => setDraft((before) => ({ ...before, ...changes })),
    topics,
    paths: run && submitted.topic === draft.topic ? run.records.paths : sample,
    run,
    isRunning: run !== null && !run.isOver,
    withResults: run !== null && (run.phase !== "failed" || run.records.rows.size > 0) ? run : null,
    runCount,
    rerun: () => setRunCount(runCount + 1),
  };
}
