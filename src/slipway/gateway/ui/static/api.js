// What the page asks the gateway. The key lies in the memory of this tab alone, and goes with it.

const KEPT = "slipway-key";
/** Where the gateway is, with the slash at its end. */
export const BASE = new URL("..", document.baseURI).href;

export const key = {
  get: () => sessionStorage.getItem(KEPT) ?? "",
  set: (text) => sessionStorage.setItem(KEPT, text),
  forget: () => sessionStorage.removeItem(KEPT),
};

/** The gateway, or a model, refused. `status` is 0 where nothing answered. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function send(path, options = {}) {
  const headers = { ...options.headers, ...(key.get() && { Authorization: `Bearer ${key.get()}` }) };
  let response;
  try {
    response = await fetch(new URL(path, BASE), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The gateway cannot be reached.");
  }
  if (!response.ok) throw new Refusal(response.status, await words(response));
  return response;
}

async function words(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text.slice(0, 300) || `The answer has the status ${response.status}.`;
  }
}

/** The list of models and conflicts, as text. Throws Refusal. */
export async function overview() {
  return (await send("ui/api/models")).text();
}

/** One model in full. Throws Refusal. */
export async function detail({ kind, namespace = "", name }) {
  const parts = [kind, namespace || "-", name].map(encodeURIComponent);
  return (await send(`ui/api/models/${parts.join("/")}`)).json();
}

/** Posts `body` to a path below /v1/ and returns the response. Throws Refusal. */
export function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return send(`v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** The events of a streamed answer, decoded, up to its end. Throws Refusal for an event that tells of an error. */
export async function* events(response) {
  let rest = "";
  for await (const text of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
    const lines = (rest + text).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Refusal(200, event.error.message ?? "The answer ended with an error.");
      yield event;
    }
  }
}

async function* chunks(stream) {
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
