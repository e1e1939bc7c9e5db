// Requests to the server. A request that fails says why in words.

export class Refused extends Error {}

async function ask(path, options = {}) {
  const response = await fetch(path, { headers: { "X-Phalanx-Board": "1" }, ...options });
  if (!response.ok) throw new Refused((await response.text()) || response.statusText);
  return response;
}

export const get = async (path) => (await ask(path)).json();
export const picture = async (path) => (await ask(path)).blob();
export const put = async (path, body) => (await ask(path, { method: "PUT", body: JSON.stringify(body) })).json();
export const post = async (path) => (await ask(path, { method: "POST" })).json();
export const fileAddress = (key, name) => `/api/run/${key}/file/${name.split("/").map(encodeURIComponent).join("/")}`;
