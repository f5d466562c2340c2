// The list: the base URL, the number of models in each state, a search, the models, their weights, and routing conflicts.

import { BASE } from "./api.js";
import { STATES, createBadge, createCopyButton, el, formatDevices, formatDuration, formatKind, formatReplicas, setText } from "./dom.js";

/** Rows that are painted before the others: a thousand take a moment. */
const FIRST = 60;
const ORDER = Object.keys(STATES);
/** Models in these states come first. */
const URGENT = ["failed", "unreachable", "degraded", "unseen"];
const COLUMNS = ["Model", "State", "Model ID", "Replicas", "Requests", "Time to first token"];

export const title = "Models";

export const path = ({ kind, namespace = "", name }) =>
  `#/${[kind, namespace || "-", name].map(encodeURIComponent).join("/")}`;

/** Creates the list: its node, and a function that shows another overview in it. */
export function createList() {
  let models = [];
  let selected = "";
  const url = el("code", {}, `${BASE}v1`);
  const search = el("input", { type: "search", id: "search", placeholder: "Name, namespace or ID", autocomplete: "off", on: { input: () => filter() } });
  const counts = el("div", { className: "counts", attributes: { role: "group", "aria-label": "Filter by state" } });
  const devices = el("p", { className: "muted" });
  const served = createTable("Models", COLUMNS);
  const weights = createTable("Weights", COLUMNS.slice(0, 2));
  const stored = el("section", { hidden: true }, el("h2", {}, "Weights"), weights.node);
  const result = el("p", { className: "muted", attributes: { role: "status" } });
  const conflicts = el("ul", { className: "conflicts" });
  const routing = el("section", { hidden: true }, el("h2", {}, "Routing conflicts"), conflicts);
  const node = el(
    "div",
    {},
    el("div", { className: "top" }, el("h1", { tabIndex: -1 }, title), el("label", { htmlFor: "search", className: "hidden" }, "Search"), search),
    el("p", { className: "base" }, el("span", { className: "muted" }, "Base URL"), url, createCopyButton("base URL", url)),
    counts,
    devices,
    served.node,
    result,
    stored,
    routing,
  );

  function show(overview) {
    models = sortModels(overview.models);
    served.show(models.filter((model) => !model.weights));
    weights.show(models.filter((model) => model.weights));
    showCounts();
    filter();
    const total = formatDevices(sumDevices(models));
    setText(devices, total ? `Used by ready replicas: ${total}` : "");
    showConflicts(overview.conflicts);
  }

  function showCounts() {
    const numbers = new Map();
    for (const { state } of models) numbers.set(state, (numbers.get(state) ?? 0) + 1);
    if (selected && !numbers.has(selected)) selected = "";
    const states = ORDER.filter((state) => numbers.has(state)).map((state) => [state, STATES[state][0], numbers.get(state), STATES[state][1]]);
    const focused = counts.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    counts.replaceChildren(
      ...[["", "All", models.length, ""], ...states].map(([state, label, number, tone]) => {
        const button = el("button", { type: "button", className: `count ${tone}`, attributes: { "aria-pressed": `${state === selected}` }, on: { click: () => select(state) } }, label, " ", el("b", {}, `${number}`));
        button.dataset.state = state;
        return button;
      }),
    );
    if (focused !== null) counts.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  function select(state) {
    selected = state;
    for (const button of counts.children) button.setAttribute("aria-pressed", `${button.dataset.state === selected}`);
    filter();
  }

  function filter() {
    const text = search.value.trim().toLowerCase();
    const matches = (model) => {
      const words = [model.name, model.namespace, model.kind, ...(model.ids ?? [])];
      return (!selected || model.state === selected) && (!text || words.some((word) => word.toLowerCase().includes(text)));
    };
    const shown = served.filter(matches);
    const others = weights.filter(matches);
    stored.hidden = !others;
    if (!models.length) setText(result, "No models yet.");
    else if (!shown && !others) setText(result, "No matching models.");
    else setText(result, shown + others < models.length ? `${shown + others} of ${models.length} models` : "");
  }

  function showConflicts(all) {
    const owned = models.filter((model) => model.conflicts).map((model) => [model, model.conflicts.join("; ")]);
    const known = new Set(owned.flatMap(([model]) => model.conflicts.map((message) => `${model.namespace} ${message}`)));
    const others = all.filter(({ namespace, message }) => !known.has(`${namespace} ${message}`));
    routing.hidden = !owned.length && !others.length;
    const text = JSON.stringify([owned.map(([model, message]) => [path(model), message]), others]);
    if (conflicts.dataset.text === text) return;
    conflicts.dataset.text = text;
    conflicts.replaceChildren(
      ...owned.map(([model, message]) => el("li", {}, el("a", { href: path(model) }, model.name), ` (${model.namespace}): ${message}`)),
      ...others.map(({ namespace, service, message }) => el("li", {}, `Service ${namespace}/${service}: ${message}`)),
    );
  }

  return { node, show, title };
}

/** Sorts models that need attention to the front, the worst first. */
function sortModels(models) {
  const rank = ({ state }) => (URGENT.includes(state) ? URGENT.indexOf(state) : URGENT.length);
  return [...models].sort((one, other) => rank(one) - rank(other));
}

function sumDevices(models) {
  const total = {};
  for (const { devices = {}, ready = 0 } of models) {
    for (const [type, count] of ready ? Object.entries(devices) : []) total[type] = (total[type] ?? 0) + count * ready;
  }
  return total;
}

/** Creates a table of models. A row that stays keeps its node, and with it the focus. */
function createTable(label, columns) {
  const rows = new Map();
  let models = [];
  const body = el("tbody", { attributes: { role: "rowgroup" } });
  const heads = columns.map((name) => el("th", { scope: "col", attributes: { role: "columnheader" } }, name));
  const node = el(
    "table",
    { className: "models", attributes: { role: "table", "aria-label": label } },
    el("thead", { attributes: { role: "rowgroup" } }, el("tr", { attributes: { role: "row" } }, ...heads)),
    body,
  );

  function show(current) {
    models = current;
    const paths = new Set(models.map(path));
    for (const key of rows.keys()) if (!paths.has(key)) rows.delete(key);
    for (const model of models) {
      if (!rows.has(path(model))) rows.set(path(model), createRow(columns.length));
      rows.get(path(model)).update(model);
    }
    place(body.childElementCount ? models.length : FIRST);
  }

  function place(limit) {
    const nodes = models.slice(0, limit).map((model) => rows.get(path(model)).node);
    if (nodes.length !== body.children.length || nodes.some((one, index) => one !== body.children[index])) {
      const focused = body.contains(document.activeElement) ? document.activeElement : null;
      body.replaceChildren(...nodes);
      focused?.focus({ preventScroll: true });
    }
    if (limit < models.length) requestAnimationFrame(() => setTimeout(() => place(models.length)));
  }

  /** Hides rows that do not match, and returns the number of the others. */
  function filter(matches) {
    let shown = 0;
    for (const model of models) {
      const fits = matches(model);
      rows.get(path(model)).node.hidden = !fits;
      shown += fits;
    }
    return shown;
  }

  return { node, show, filter };
}

function createRow(columns) {
  const link = el("a", {});
  const under = el("span", { className: "under" });
  const state = el("span", {});
  const reason = el("span", { className: "under" });
  const id = el("code", {});
  const more = el("span", { className: "under" });
  const [replicas, requests, first] = COLUMNS.slice(3).map((label) => el("td", { className: "figure", attributes: { role: "cell", "data-label": label } }));
  const cells = [
    el("th", { scope: "row", attributes: { role: "rowheader" } }, link, under),
    el("td", { attributes: { role: "cell", "data-label": "State" } }, state, reason),
    el("td", { className: "id", attributes: { role: "cell", "data-label": "Model ID" } }, id, more),
    replicas,
    requests,
    first,
  ];
  const node = el("tr", { attributes: { role: "row" } }, ...cells.slice(0, columns));
  let text = "";

  function update(model) {
    const current = JSON.stringify(model);
    if (current === text) return;
    text = current;
    const { ids = [], active = 0, waiting = 0, conflicts = [], progress } = model;
    const others = ids.slice(1).filter((one) => one !== `${model.namespace}/${model.name}`).length;
    setText(link, model.name);
    link.href = path(model);
    setText(under, [model.namespace, formatKind(model.kind)].filter(Boolean).join(" · "));
    if (state.dataset.state !== model.state) {
      state.replaceChildren(createBadge(model.state));
      state.dataset.state = model.state;
    }
    const word = ["ready", "asleep"].includes(model.state) ? "" : (model.reason ?? "");
    setText(reason, [word, progress !== undefined && `${progress} %`, conflicts.length && "conflict"].filter(Boolean).join(" · "));
    setText(id, ids[0] ?? "");
    setText(more, others ? `and ${others} more` : "");
    setText(replicas, formatReplicas(model));
    setText(requests, [active && `${active} active`, waiting && `${waiting} waiting`].filter(Boolean).join(", ") || (ids.length ? "0" : ""));
    setText(first, formatDuration(model.first_byte_ms));
  }

  return { node, update };
}
