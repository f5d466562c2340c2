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
  failed: ["Failed", "bad", "It does not answer, and will not by itself."],
  unreachable: ["No id leads to it", "bad", "It runs, but no request can name it."],
  degraded: ["Change failed", "warn", "It answers as it was before its newest change."],
  unseen: ["Not taken up", "warn", "No controller has said anything of it yet."],
  starting: ["Starting", "busy", "It does not answer yet. Requests wait for it."],
  updating: ["Changing", "busy", "It answers. Its newest change is on its way."],
  ready: ["Ready", "good", "It answers."],
  asleep: ["Asleep", "calm", "No replica runs. The first request starts one, and waits for it."],
  stopped: ["Stopped", "calm", "No replica runs, and no request starts one."],
  leaving: ["Being deleted", "calm", "It is on its way out."],
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
