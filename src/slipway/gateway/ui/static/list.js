// The list: how many models are in which state, a search, a table, and the conflicts of the routing table.

import { STATES, badge, duration, el, family, replicas, say } from "./dom.js";

/** So many rows are painted before the others are made, which takes a moment where there are a thousand. */
const FIRST = 60;
const ORDER = Object.keys(STATES);
const COLUMNS = ["Model", "State", "Id", "Replicas", "Requests", "First byte"];

export const title = "Models";

export const path = ({ kind, namespace = "", name }) =>
  `#/${[kind, namespace || "-", name].map(encodeURIComponent).join("/")}`;

/** The view: its node, and how to show another overview in it. */
export function list() {
  let models = [];
  let chosen = "";
  let newest = null;
  const rows = new Map();
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Name, namespace or id",
    autocomplete: "off",
    on: { input: () => filter() },
  });
  const counts = el("div", { className: "counts", attributes: { role: "group", "aria-label": "Show by state" } });
  const body = el("tbody", { attributes: { role: "rowgroup" } });
  const found = el("p", { className: "muted", attributes: { role: "status" } });
  const conflicts = el("section", { hidden: true });
  const heads = COLUMNS.map((name) => el("th", { scope: "col", attributes: { role: "columnheader" } }, name));
  const node = el(
    "div",
    {},
    el("div", { className: "top" }, el("h1", { tabIndex: -1 }, title), el("label", { htmlFor: "search", className: "hidden" }, "Search"), search),
    counts,
    el(
      "table",
      { className: "models", attributes: { role: "table", "aria-label": "Models" } },
      el("thead", { attributes: { role: "rowgroup" } }, el("tr", { attributes: { role: "row" } }, ...heads)),
      body,
    ),
    found,
    conflicts,
  );

  function show(overview) {
    newest = overview;
    models = overview.models;
    const wanted = models.map((model) => {
      const ident = path(model);
      if (!rows.has(ident)) rows.set(ident, row());
      rows.get(ident).update(model);
      return [ident, rows.get(ident)];
    });
    const now = new Set(wanted.map(([ident]) => ident));
    for (const ident of rows.keys()) if (!now.has(ident)) rows.delete(ident);
    const nodes = wanted.map(([, made]) => made.node);
    if (nodes.length !== body.children.length || nodes.some((one, place) => one !== body.children[place])) {
      const some = body.children.length ? nodes : nodes.slice(0, FIRST);
      body.replaceChildren(...some);
      if (some.length < nodes.length) requestAnimationFrame(() => setTimeout(() => show(newest)));
    }
    tell();
    filter();
    complain(overview.conflicts);
  }

  function tell() {
    const numbers = new Map();
    for (const { state } of models) numbers.set(state, (numbers.get(state) ?? 0) + 1);
    if (chosen && !numbers.has(chosen)) chosen = "";
    const wanted = [["", "All", models.length, ""], ...ORDER.filter((state) => numbers.has(state)).map((state) => [state, STATES[state][0], numbers.get(state), STATES[state][1]])];
    const focused = counts.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    counts.replaceChildren(
      ...wanted.map(([state, label, number, tone]) => {
        const button = el("button", { type: "button", className: `count ${tone}`, attributes: { "aria-pressed": `${state === chosen}` }, on: { click: () => choose(state) } }, label, " ", el("b", {}, `${number}`));
        button.dataset.state = state;
        return button;
      }),
    );
    if (focused !== null) counts.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  function choose(state) {
    chosen = state;
    for (const button of counts.children) button.setAttribute("aria-pressed", `${button.dataset.state === chosen}`);
    filter();
  }

  function filter() {
    const text = search.value.trim().toLowerCase();
    let shown = 0;
    for (const model of models) {
      const words = [model.name, model.namespace, model.kind, ...(model.ids ?? [])];
      const fits = (!chosen || model.state === chosen) && (!text || words.some((word) => word.toLowerCase().includes(text)));
      rows.get(path(model)).node.hidden = !fits;
      shown += fits;
    }
    let told = "";
    if (!models.length) told = "No model has been declared yet.";
    else if (!shown) told = "No model is like that.";
    else if (shown < models.length) told = `${shown} of ${models.length} models.`;
    say(found, told);
  }

  function complain(told) {
    conflicts.hidden = !told.length;
    conflicts.replaceChildren(
      el("h2", {}, "Conflicts of the routing table"),
      el("ul", { className: "conflicts" }, ...told.map(({ namespace, service, message }) => el("li", {}, el("code", {}, `${namespace}/${service}`), " ", message))),
    );
  }

  return { node, show, title };
}

function row() {
  const link = el("a", {});
  const under = el("span", { className: "under" });
  const state = el("span", {});
  const reason = el("span", { className: "under" });
  const id = el("code", {});
  const more = el("span", { className: "under" });
  const cells = {
    replicas: cell("Replicas"),
    requests: cell("Requests"),
    first: cell("First byte"),
  };
  const node = el(
    "tr",
    { attributes: { role: "row" } },
    el("th", { scope: "row", attributes: { role: "rowheader" } }, link, under),
    el("td", { attributes: { role: "cell", "data-label": "State" } }, state, reason),
    el("td", { className: "id", attributes: { role: "cell", "data-label": "Id" } }, id, more),
    ...Object.values(cells),
  );
  let before = "";

  function update(model) {
    const now = JSON.stringify(model);
    if (now === before) return;
    before = now;
    const { ids = [], active = 0, waiting = 0, conflicts = [] } = model;
    const others = ids.slice(1).filter((one) => one !== `${model.namespace}/${model.name}`).length;
    say(link, model.name);
    link.href = path(model);
    say(under, [model.namespace, family(model.kind)].filter(Boolean).join(" · "));
    if (state.dataset.state !== model.state) {
      state.replaceChildren(badge(model.state));
      state.dataset.state = model.state;
    }
    const told = ["ready", "asleep"].includes(model.state) ? "" : (model.reason ?? "");
    say(reason, [told, conflicts.length ? "conflict" : ""].filter(Boolean).join(" · "));
    say(id, ids[0] ?? "");
    say(more, others ? `and ${others} more` : "");
    say(cells.replicas, replicas(model));
    say(cells.requests, [active && `${active} under way`, waiting && `${waiting} waiting`].filter(Boolean).join(", ") || (ids.length ? "0" : ""));
    say(cells.first, duration(model.first_byte_ms));
  }

  return { node, update };
}

function cell(label) {
  return el("td", { className: "figure", attributes: { role: "cell", "data-label": label } });
}
