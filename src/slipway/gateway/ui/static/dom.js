// Elements from data. Text is always text: what the cluster says never becomes markup.

/** An element: `properties` are properties of the node, `attributes` those that only exist as such, `on` its listeners. */
export function el(tag, { attributes = {}, on = {}, ...properties } = {}, ...children) {
  const node = document.createElement(tag);
  Object.assign(node, properties);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  node.append(...children.filter((child) => child !== "" && child !== null));
  return node;
}

/** Sets a node's text where it differs, so that nothing is painted or read aloud anew for nothing. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A node's children from text in which `backticks` mark code. */
export function prose(text) {
  return text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? el("code", {}, part) : part));
}

/** What each state is called, how it looks, and what it means where the status has no words of its own. */
export const STATES = {
  failed: ["Failed", "bad", "It is not answering, and will not recover without a change."],
  unreachable: ["Unreachable", "bad", "It is running, but requests cannot reach it."],
  degraded: ["Change failed", "warn", "It still answers as it did before its latest change."],
  unseen: ["No status yet", "warn", "No controller has reported on it yet."],
  starting: ["Starting", "busy", "It is not answering yet. Requests wait for it."],
  updating: ["Changing", "busy", "It answers. Its latest change is being rolled out."],
  ready: ["Ready", "good", "It answers."],
  asleep: ["Asleep", "calm", "No replica is running. The first request starts one and waits for it."],
  stopped: ["Stopped", "calm", "No replica is running, and requests do not start one."],
  leaving: ["Being deleted", "calm", "It will be gone soon."],
};

/** A state as a word with a mark before it. */
export function badge(state) {
  const [label, tone] = STATES[state] ?? [state, "calm"];
  return el("span", { className: `badge ${tone}` }, label);
}

/** Of a model's kind, the part that tells which API it is of. */
export function family(kind) {
  return kind === "services" ? "Service" : kind;
}

/** Replicas as "1 of 2", or as one number where there are as many as wanted; empty for what no id leads to. */
export function replicas({ ready = 0, wanted, ids = [] }) {
  if (!ids.length) return "";
  return wanted === undefined || wanted === ready ? `${ready}` : `${ready} of ${wanted}`;
}

/** Milliseconds as people say them. */
export function duration(milliseconds) {
  if (milliseconds === undefined) return "";
  return milliseconds < 1000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

/** Seconds since 1970 as the time of the day. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString();
}
