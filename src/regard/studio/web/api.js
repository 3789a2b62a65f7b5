// Requests to the server: JSON, one sentence for each error, and server-sent events.

const ROOT = "/api/v1";
const TOKEN = "regard-token";

// The token comes once in the address, after the #, which no server sees, and stays in this tab.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(null, "", location.pathname);
}

/** An error of the server: its sentence, or the key of one of the page's, and the field of the request that caused it. */
export class ApiError extends Error {
  constructor(message, { field = null, status = 0, key = null } = {}) {
    super(message);
    Object.assign(this, { field, status, key });
  }
}

async function send(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(ROOT + path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("offline", { key: "offline" });
  }
  if (answer.ok) return answer;
  const found = await answer.json().catch(() => ({}));
  const key = answer.status === 401 ? "tokenMissing" : null;
  throw new ApiError(found.error ?? answer.statusText, { field: found.field, status: answer.status, key });
}

export async function get(path, options) {
  return (await send(path, options)).json();
}

export async function post(path, body, options) {
  return (await send(path, { method: "POST", body, ...options })).json();
}

export async function blob(path, body, options) {
  return (await send(path, { method: "POST", body, ...options })).blob();
}

/** Call `act` with the data of every event, until the stream ends. */
export async function events(path, act, signal) {
  const answer = await send(path, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const line = text.slice(0, end).split("\n").find((each) => each.startsWith("data: "));
      if (line) act(JSON.parse(line.slice(6)));
    }
  }
}

/** One request at a time: a new one cancels the one before. */
export class Latest {
  async run(request) {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    try {
      const found = await request(controller.signal);
      return this.controller === controller ? found : null;
    } catch (error) {
      if (error.name === "AbortError" || this.controller !== controller) return null;
      throw error;
    }
  }
}
