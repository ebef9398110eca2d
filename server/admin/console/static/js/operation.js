// A button that has something done: it asks first, and says why if it may not be pressed.

import { html } from "./html.js";
import { confirm } from "./dialog.js";
import { useMay, userOf } from "./session.js";

/**
 * @param {{
 *   deed: import("./dialog.js").Deed,
 *   session: import("./session.js").Session,
 *   name?: string,
 *   unless?: string,
 * }} props `name` is what is done it to, for those who hear the button and do not see where it is;
 *   `unless` says why it cannot be done at the moment
 */
export function DeedButton({ deed, session, name = "", unless = "" }) {
  const may = useMay(deed.path, session);
  const reason = may === false ? `${userOf(session)} may not do this: entitlement does not allow it.` : unless;
  const isOff = !may || Boolean(unless);
  return html`
    <button
      class=${deed.isGrave ? "grave outlined" : "outlined"}
      aria-disabled=${isOff ? "true" : undefined}
      aria-label=${[deed.label, name, reason].filter(Boolean).join(", ")}
      title=${reason || undefined}
      onClick=${() => !isOff && confirm(deed)}
    >
      ${deed.label}
    </button>
  `;
}
