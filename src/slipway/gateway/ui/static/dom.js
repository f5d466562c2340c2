// Elements from data. Text stays text: nothing from the cluster, or from a model, becomes markup.

/** Creates an element. `properties` are the node's properties, `attributes` its attributes, `on` its listeners. */
export function el(tag, { attributes = {}, on = {}, ...properties } = {}, ...children) {
  const node = document.createElement(tag);
  Object.assign(node, properties);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  node.append(...children.filter((child) => child !== "" && child !== null));
  return node;
}

/** Sets a node's text if it differs, so that nothing is painted or read aloud again without a change. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Splits text at `backticks`, which mark code. */
export function parseCode(text) {
  return text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? el("code", {}, part) : part));
}

/** The label, the look and the meaning of each state. */
export const STATES = {
  failed: ["Failed", "bad", "This model is not running and needs a change."],
  unreachable: ["No model ID", "bad", "This model is running, but no model ID leads to it."],
  degraded: ["Change failed", "warn", "The latest change failed. The previous version still answers."],
  unseen: ["No controller", "warn", "No controller has reported a status yet."],
  starting: ["Starting", "busy", "This model is not ready yet. Requests wait for it."],
  updating: ["Updating", "busy", "This model answers. A change is in progress."],
  ready: ["Ready", "good", "This model answers."],
  asleep: ["Asleep", "calm", "Scaled to zero. The next request starts a replica."],
  stopped: ["Stopped", "calm", "Scaled to zero. Requests do not start a replica."],
  leaving: ["Deleting", "calm", "This model is being deleted."],
};

/** Creates the label of a state, with a mark in front. */
export function createBadge(state) {
  const [label, tone] = STATES[state] ?? [state, "calm"];
  return el("span", { className: `badge ${tone}` }, label);
}

/** Creates a button that copies the text of `source`. */
export function createCopyButton(name, source) {
  const label = el("span", { attributes: { "aria-live": "polite" } }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch { // browsers have no clipboard for pages without TLS
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    setText(label, "Copied");
    setTimeout(() => setText(label, "Copy"), 2000);
  }
  return el("button", { type: "button", className: "quiet", on: { click: copy } }, label, el("span", { className: "hidden" }, ` ${name}`));
}

export function formatKind(kind) {
  return kind === "services" ? "Service" : kind;
}

/** Formats replicas as "1 of 2", or as one number if all of them are ready. Empty without a model ID. */
export function formatReplicas({ ready = 0, wanted, ids = [] }) {
  if (!ids.length) return "";
  return wanted === undefined || wanted === ready ? `${ready}` : `${ready} of ${wanted}`;
}

/** Formats devices as "2 × nvidia.com/gpu". `factor`: the number of replicas. */
export function formatDevices(devices = {}, factor = 1) {
  return Object.entries(devices).map(([type, count]) => `${count * factor} × ${type}`).join(", ");
}

export function formatDuration(milliseconds) {
  if (milliseconds === undefined) return "";
  return milliseconds < 1000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

/** Formats the time since `seconds` (Unix time) as "5 min". */
export function formatAge(seconds) {
  const age = Math.max(0, Math.round(Date.now() / 1000 - seconds));
  const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, least]) => age >= least) ?? ["s", 1];
  return `${Math.floor(age / size)} ${unit}`;
}

/** Formats Unix time as a time of day, 24 hours. */
export function formatClock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}
