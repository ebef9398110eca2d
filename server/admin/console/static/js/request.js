// How the page asks its server for anything.
//
// Each request says that a script has made it. So the server does not answer with a challenge at which
// the browser would ask for a password, again and again, in front of whatever is being done: the page
// says itself that one has to log on, and where (standing.js).

/** Told on the page, and never in a worker, when the server does not know any more who this is. */
export const LOGGED_OUT = "loggedout";

/**
 * As `fetch`.
 * @param {string} url
 * @param {RequestInit} [options]
 */
export async function request(url, options = {}) {
  const headers = { .../** @type {Record<string, string>} */ (options.headers), "X-Requested-With": "console" };
  const answer = await fetch(url, { ...options, headers });
  if (answer.status === 401) globalThis.dispatchEvent(new Event(LOGGED_OUT));
  return answer;
}

/**
 * Read a document.
 * @param {string} url
 * @param {RequestInit} [options]
 * @throws {Error} with what the server says
 */
export async function readJson(url, options) {
  const answer = await request(url, options);
  if (!answer.ok) throw new Error(await said(answer));
  return answer.json();
}

/** What a refusal says, for people. @param {Response} answer */
export async function said(answer) {
  const text = (await answer.text()).trim();
  return text.split("\n").slice(1).join("\n").trim() || text || `${answer.status} ${answer.statusText}`;
}
