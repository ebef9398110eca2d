// The findings about the instance, the worst first: what is wrong, where it is seen, and what to do.

import { html, useEffect, useState } from "./html.js";
import { clock, counted, visible } from "./format.js";
import { readJson } from "./request.js";
import { useRefusal } from "./session.js";

const PATH = "/amps/instance/findings";
const RUNBOOK = "/console/docs/operations.md";

/**
 * @typedef {object} Finding
 * @property {string} area
 * @property {string} name
 * @property {string} verdict  ok, warning or error
 * @property {string} value
 * @property {string} since    empty if that is not known
 * @property {string} reason
 * @property {string} advice
 * @property {string} page     of the console, as in its URL
 * @property {string} runbook  the section of the runbook
 */

/** Shows the findings, read with each sample. @param {{ moment: string, session: import("./session.js").Session }} props */
export function Findings({ moment, session }) {
  const [checks, setChecks] = useState(/** @type {Finding[] | null} */ (null));
  const [problem, setProblem] = useState("");
  const refusal = useRefusal(PATH, session);
  useEffect(() => {
    if (!moment) return;
    readJson(`${PATH}.json`).then(
      (document) => {
        setChecks(document.amps.instance.findings.checks);
        setProblem("");
      },
      (error) => setProblem(error.message),
    );
  }, [moment]);
  if (refusal || (problem && !checks)) return html`<p class="hint">${refusal || problem}</p>`;
  if (!checks) return html`<p class="finding-sum" role="status">\u2026</p>`;
  const shown = checks.filter((check) => check.verdict !== "ok");
  return html`
    <section aria-label="Findings">
      <p class=${`finding-sum ${shown.length ? "" : "good"}`} role="status">
        ${shown.length ? html`<strong>${counted(shown.length, "findings")}</strong>` : html`<strong>Nothing is wrong.</strong>`}
        ${" "}<a href=${PATH}>${counted(checks.length, "checks")}</a>
      </p>
      ${shown.length > 0 && html`<ul class="findings">${shown.map((finding) => html`<${FindingView} key=${finding.area + finding.name} finding=${finding} />`)}</ul>`}
    </section>
  `;
}

/** @param {{ finding: Finding }} props */
function FindingView({ finding }) {
  const { name, verdict, value, since, reason, advice, page, runbook } = finding;
  return html`
    <li class=${verdict === "error" ? "bad" : "warn"}>
      <span class="verdict">${verdict}</span>
      <div>
        <p>
          <a class="name" href=${`#/${page}`}>${visible(name)}</a> ${visible(value)}
          ${since && html`<span class="muted">, since ${clock(since)}</span>`}
        </p>
        <p class="muted">${visible(reason)}; ${visible(advice)}. <a href=${`${RUNBOOK}#${runbook}`} aria-label=${`What to do: ${name}`}>What to do</a></p>
      </div>
    </li>
  `;
}
