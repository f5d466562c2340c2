// Requests to the gateway. The key is in the storage of this tab only, until the tab is closed.

const STORED = "slipway-key";
/** The gateway's address, with a slash at the end. */
export const BASE = new URL("..", document.baseURI).href;

export const key = {
  get: () => sessionStorage.getItem(STORED) ?? "",
  set: (text) => sessionStorage.setItem(STORED, text),
  forget: () => sessionStorage.removeItem(STORED),
};

/** An error of the gateway or of a model. `status` is 0 if there was no response, `code` is empty if it has none. */
export class RequestError extends Error {
  constructor(status, message, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function send(path, options = {}) {
  const headers = { ...options.headers, ...(key.get() && { Authorization: `Bearer ${key.get()}` }) };
  let response;
  try {
    response = await fetch(new URL(path, BASE), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "The gateway is unreachable.");
  }
  if (!response.ok) throw await readError(response);
  return response;
}

async function readError(response) {
  const { status } = response;
  const text = await response.text();
  try {
    const { message, code } = JSON.parse(text).error;
    return new RequestError(status, message, code ?? "");
  } catch {
    return new RequestError(status, text.slice(0, 300) || `The response has status ${status}.`);
  }
}

/** Returns all models and conflicts, as text. Throws RequestError. */
export async function fetchOverview() {
  return (await send("ui/api/models")).text();
}

/** Returns one model in full. Throws RequestError. */
export async function fetchDetail({ kind, namespace = "", name }) {
  const parts = [kind, namespace || "-", name].map(encodeURIComponent);
  return (await send(`ui/api/models/${parts.join("/")}`)).json();
}

/** Posts `body` to a path below /v1/ and returns the response. Throws RequestError. */
export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return send(`v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** Yields the decoded events of a streamed response. Throws RequestError for an event with an error. */
export async function* readEvents(response) {
  let rest = "";
  for await (const text of readChunks(response.body.pipeThrough(new TextDecoderStream()))) {
    const lines = (rest + text).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new RequestError(200, event.error.message ?? "The answer ended with an error.");
      yield event;
    }
  }
}

async function* readChunks(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
