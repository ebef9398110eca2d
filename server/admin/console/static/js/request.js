// Requests of the page to its server.
//
// Each request is marked as that of a script, so that the server does not answer with a challenge, at
// which the browser would ask for a password. The page shows instead that a logon is needed
// (connection_status.js).

/** The event on the page, not in workers, when the server requires a logon again. */
export const LOGGED_OUT = "loggedout";

/**
 * Fetch a URL; see `fetch`.
 * @param {string} url
 * @param {RequestInit} [options]
 */
export async function request(url, options = {}) {
  const headers = { .../** @type {Record<string, string>} */ (options.headers), "X-Requested-With": "console" };
  const response = await fetch(url, { ...options, headers });
  if (response.status === 401) globalThis.dispatchEvent(new Event(LOGGED_OUT));
  return response;
}

/**
 * Fetch a JSON document.
 * @param {string} url
 * @param {RequestInit} [options]
 * @throws {Error} with the server's reason
 */
export async function readJson(url, options) {
  const response = await request(url, options);
  if (!response.ok) throw new Error(await errorText(response));
  return response.json();
}

/** Return the reason in an error response, as readable text. @param {Response} response */
export async function errorText(response) {
  const text = (await response.text()).trim();
  return text.split("\n").slice(1).join("\n").trim() || text || `${response.status} ${response.statusText}`;
}
