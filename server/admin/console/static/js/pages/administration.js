// All that can be done to the instance, in one place: the same deeds, with the same entitlement, as below
// /amps/administrator. What the user may not do is there, and says why it cannot be pressed.

import { html, useEffect, useState } from "../html.js";
import { DeedButton } from "../deed.js";
import { visible } from "../format.js";
import { useLive } from "../live.js";
import { PageHead, Search } from "../parts.js";
import { readJson } from "../request.js";
import { change, href } from "../route.js";
import { useRefusal } from "../session.js";

const TOP = "/amps/administrator";
const ON_REQUEST = "amps-action-on-admin";
const MOST_SHOWN = 200;

/**
 * @typedef {object} Offer  what can be done to one kind of thing
 * @property {string} title
 * @property {string} path  of the group below /amps/administrator
 * @property {string} [place] below /amps/instance: where the things are; without it, it is for the instance
 * @property {(entry: any) => boolean} [isFit] for which of them it is
 * @property {{ name: string, label: string, text: string, isGrave?: boolean, unless?: (entry: any) => string }[]} deeds
 */

/** @type {Offer[]} */
const OFFERS = [
  {
    title: "Transports",
    path: "transports",
    place: "transports",
    deeds: [
      { name: "enable", label: "Enable", text: "It takes connections.", unless: (entry) => (Number(entry.is_enabled) ? "It is enabled." : "") },
      {
        name: "disable",
        label: "Disable",
        text: "It takes no connections, and those that there are are closed.",
        isGrave: true,
        unless: (entry) => (Number(entry.is_enabled) ? "" : "It is disabled."),
      },
    ],
  },
  {
    title: "Replication",
    path: "replication",
    place: "replication",
    deeds: [
      { name: "reconnect", label: "Reconnect", text: "The connection is closed, and made again." },
      {
        name: "downgrade",
        label: "Downgrade",
        text: "Publishers do not wait for this destination any more. Should this instance fail, what they have published may not be there.",
        isGrave: true,
        unless: (entry) => (entry.replication_type === "async" ? "Nobody waits for it." : ""),
      },
      { name: "upgrade", label: "Upgrade", text: "Publishers wait for this destination again.", unless: (entry) => (entry.replication_type === "sync" ? "It is waited for." : "") },
    ],
  },
  {
    title: "Queues",
    path: "queues",
    place: "queues",
    deeds: [
      { name: "enable_proxied_transfer", label: "Enable proxied transfer", text: "The queue claims messages of instances that cannot be reached. Should such an instance go on, messages may be delivered twice.", isGrave: true, unless: (entry) => (Number(entry.proxied_transfer) ? "It does." : "") },
      { name: "disable_proxied_transfer", label: "Disable proxied transfer", text: "The queue leaves messages to the instances that own them.", unless: (entry) => (Number(entry.proxied_transfer) ? "" : "It does not.") },
    ],
  },
  {
    title: "Authorization",
    path: "authorization",
    deeds: [
      { name: "authentication/reset", label: "Reset authentication", text: "What is kept about earlier decisions is forgotten, and everybody has to log on to this page again." },
      { name: "entitlement/reset", label: "Reset entitlement", text: "What is kept about earlier decisions is forgotten." },
    ],
  },
  {
    title: "Diagnostics",
    path: "",
    deeds: [
      { name: "diagnostics/dump", label: "Dump queues", text: "The state of the queues is written to the log." },
      { name: "minidump", label: "Minidump", text: "What the process is doing is written to a file, without stopping it." },
    ],
  },
];

/** @param {{ params: Record<string, string>, session: import("../session.js").Session }} props */
export function Page({ params, session }) {
  const { tree, standing } = useLive("/amps/instance", "queues,replication,transports");
  const find = params.find ?? "";
  return html`
    <${PageHead} title="Administration">
      <${Search} label="Find what to do" value=${find} onFind=${(/** @type {string} */ text) => change({ find: text })} />
    </${PageHead}>
    <p class="hint">
      Clients are disconnected on <a href=${href("clients")}>their page</a>, topics compacted on
      ${" "}<a href=${href("topics")}>theirs</a>, and journals removed on <a href=${href("journals")}>theirs</a>.
      All of it is logged <span class="whole">(19-0011)</span>.
    </p>
    <div class="offers">
      <${RequestedActions} find=${find} session=${session} />
      ${OFFERS.map((offer) => html`<${OfferView} key=${offer.title} offer=${offer} tree=${tree} standing=${standing} find=${find} session=${session} />`)}
    </div>
  `;
}

/** @param {{ offer: Offer, tree: import("../tree.js").Tree, standing: import("../events.js").Standing, find: string, session: import("../session.js").Session }} props */
function OfferView({ offer, tree, standing, find, session }) {
  const refusal = useRefusal(offer.place ? `/amps/instance/${offer.place}` : TOP, session, standing);
  const all = offer.place ? tree.entries(`amps/instance/${offer.place}`) : [{ id: "" }];
  const isLike = (/** @type {string} */ text) => text.toLowerCase().includes(find.toLowerCase());
  const fit = all.filter((entry) => isLike(offer.title) || isLike(entry.id) || offer.deeds.some((deed) => isLike(deed.label)));
  if (!fit.length && offer.place && refusal && isLike(offer.title)) {
    return html`<section class="offer"><h2>${offer.title}</h2><p class="hint">${refusal}</p></section>`;
  }
  if (!fit.length) return null;
  return html`
    <section class="offer">
      <h2>${offer.title}</h2>
      <ul>
        ${fit.slice(0, MOST_SHOWN).map((entry) => html`
          <li key=${entry.id}>
            ${entry.id && html`<span class="name">${visible(entry.id)}</span>`}
            <span class="buttons">
              ${offer.deeds.map((deed) => html`<${DeedButton} deed=${deedOf(offer, deed, entry)} unless=${deed.unless?.(entry)} session=${session} name=${entry.id} />`)}
            </span>
          </li>
        `)}
      </ul>
      ${fit.length > MOST_SHOWN && html`<p>${fit.length - MOST_SHOWN} more: search for them.</p>`}
    </section>
  `;
}

/** @param {Offer} offer @param {Offer["deeds"][number]} deed @param {{ id: string }} entry */
function deedOf(offer, deed, entry) {
  const names = [...offer.path.split("/"), ...(entry.id ? [encodeURIComponent(entry.id)] : []), ...deed.name.split("/")];
  return {
    path: `${TOP}/${names.filter(Boolean).join("/")}`,
    label: deed.label,
    title: `${deed.label}${entry.id ? ` ${visible(entry.id)}` : ""}?`,
    text: deed.text,
    isGrave: deed.isGrave,
  };
}

/** @typedef {{ path: string, name: string, about: string, parameters: string[] }} Requested */

/** What runs on request; actions with one path run together. @param {{ triggers: import("./actions.js").Trigger[] }[]} actions @returns {Requested[]} */
function requested(actions) {
  /** @type {Map<string, Requested>} */
  const found = new Map();
  for (const { module, options } of actions.flatMap(({ triggers }) => triggers)) {
    if (module !== ON_REQUEST) continue;
    const all = (/** @type {string} */ name) => options.filter(([key]) => key === name).map(([, value]) => value);
    const [path = ""] = all("Path");
    const one = found.get(path) ?? { path, name: "", about: "", parameters: [] };
    const [name = path] = all("Name");
    found.set(path, {
      path,
      name: [one.name, name].filter(Boolean).join(" and "),
      about: [one.about, ...all("Description")].filter(Boolean).join("; "),
      parameters: [...new Set([...one.parameters, ...all("RequiredParameter")])],
    });
  }
  return [...found.values()];
}

/** The actions that the configuration lets an operator run. @param {{ find: string, session: import("../session.js").Session }} props */
function RequestedActions({ find, session }) {
  const [actions, setActions] = useState(/** @type {Requested[]} */ ([]));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    readJson("/console/actions.json").then(
      (found) => setActions(requested(found.actions)),
      (error) => setProblem(error.message),
    );
  }, []);
  const like = actions.filter((one) => `actions ${one.path} ${one.name} ${one.about}`.toLowerCase().includes(find.toLowerCase()));
  if (problem) return html`<section class="offer"><h2>Actions</h2><p class="hint">${problem}</p></section>`;
  if (!like.length) return null;
  return html`
    <section class="offer">
      <h2>Actions</h2>
      <ul>
        ${like.map((one) => html`
          <li key=${one.path}>
            <span class="name">${visible(one.name)} ${one.about && html`<small>${visible(one.about)}</small>`}</span>
            <span class="buttons"><${DeedButton}
              deed=${{
                path: `${TOP}/actions/${encodeURIComponent(one.path)}`,
                label: "Run",
                title: `Run ${visible(one.name)}?`,
                text: one.about ? visible(one.about) : "The action is begun.",
                parameters: one.parameters,
              }}
              session=${session}
              name=${one.name}
            /></span>
          </li>
        `)}
      </ul>
    </section>
  `;
}
