// One model: its state and the reason, what to do, its figures, a chat, examples, and its conditions.

import { createChat } from "./chat.js";
import { fetchDetail } from "./api.js";
import { CHAT, FEATURES, createExamples, findFeature } from "./examples.js";
import { STATES, createBadge, el, formatAge, formatDevices, formatDuration, formatKind, formatReplicas, parseCode, setText } from "./dom.js";

/** Creates the view of one model: its node, and functions that show another overview in it and update ages. */
export function createModel({ kind, namespace, name }) {
  const parts = { head: createHead(name), status: createStatus(), figures: createFigures(), use: createUse(), details: createDetails() };
  const missing = el("p", { hidden: true }, "This model no longer exists.");
  const back = el("p", { className: "back" }, el("a", { href: "#/" }, "← All models"));
  const node = el("div", { className: "model" }, back, ...Object.values(parts).map((part) => part.node), missing);
  let version = "";

  function show(overview) {
    const model = overview.models.find((one) => one.kind === kind && (one.namespace ?? "") === namespace && one.name === name);
    missing.hidden = Boolean(model);
    for (const part of Object.values(parts)) if (part !== parts.head) part.node.hidden = !model;
    if (!model) return;
    for (const part of Object.values(parts)) part.update?.(model, overview);
    const current = JSON.stringify([model.state, model.reason, model.message, model.ready, model.ids]);
    if (current !== version) fetchDetail(model).then(parts.details.fill, () => { version = ""; });
    version = current;
  }

  return { node, show, title: name, tick: parts.head.tick };
}

function createHead(name) {
  const state = el("span", {});
  const facts = el("p", { className: "muted" });
  let latest = null;
  function tick() {
    if (!latest) return;
    const { kind, namespace, source, created } = latest;
    setText(facts, [formatKind(kind), namespace, source, created && `created ${formatAge(created)} ago`].filter(Boolean).join(" · "));
  }
  return {
    node: el("div", {}, el("div", { className: "top" }, el("h1", { tabIndex: -1 }, name), state), facts),
    tick,
    update(model) {
      latest = model;
      if (state.dataset.state !== model.state) {
        state.replaceChildren(createBadge(model.state));
        state.dataset.state = model.state;
      }
      tick();
    },
  };
}

function createStatus() {
  const meaning = el("p", {});
  const reason = el("p", { className: "reason" });
  const message = el("p", { className: "message" });
  const log = el("pre", { tabIndex: 0, attributes: { "aria-label": "Last log lines" } });
  const bar = el("progress", { max: 100, attributes: { "aria-label": "Loaded weights" } });
  const percent = el("span", {});
  const progress = el("p", { className: "progress" }, bar, percent);
  const advice = el("p", {});
  const todo = el("div", {}, el("h3", {}, "What to do"), advice);
  const conflicts = el("ul", { className: "conflicts" });
  const node = el("section", { attributes: { "aria-label": "Status" } }, meaning, reason, message, log, progress, conflicts, todo);
  return {
    node,
    update(model) {
      const { state, conflicts: problems = [], advice: fix = "" } = model;
      const [, tone, text] = STATES[state] ?? ["", "calm", ""];
      const fine = ["ready", "asleep", "stopped"].includes(state);
      const [first, ...lines] = fine ? [""] : (model.message ?? "").split("\n");
      node.className = `why ${problems.length && tone === "good" ? "warn" : tone}`;
      node.classList.toggle("nothing", state === "ready" && !problems.length);
      setText(meaning, text);
      setText(reason, fine ? "" : (model.reason ?? ""));
      setText(message, first === text ? "" : first);
      setText(log, lines.join("\n"));
      log.hidden = !lines.length;
      progress.hidden = model.progress === undefined;
      bar.value = model.progress ?? 0;
      setText(percent, `${model.progress ?? 0} % loaded`);
      replaceIfChanged(advice, fix, () => parseCode(fix));
      todo.hidden = !fix;
      replaceIfChanged(conflicts, problems.join("\n"), () => problems.map((one) => el("li", {}, one)));
    },
  };
}

function replaceIfChanged(node, text, createChildren) {
  if (node.dataset.text === text) return;
  node.dataset.text = text;
  node.replaceChildren(...createChildren());
}

function createFigures() {
  const list = el("dl", {});
  const values = new Map();
  function setFigure(label, text) {
    if (!values.has(label)) {
      values.set(label, el("dd", {}));
      list.append(el("div", {}, el("dt", {}, label), values.get(label)));
    }
    setText(values.get(label), text);
    values.get(label).parentElement.hidden = !text;
  }
  return {
    node: el("section", { className: "facts", attributes: { "aria-label": "Figures" } }, list),
    update(model) {
      const { ids = [], active = 0, waiting = 0, answered = 0, failed = 0, passed_over: skipped = 0 } = model;
      const served = ids.length > 0;
      setFigure("Replicas", formatReplicas(model));
      setFigure("Per replica", formatDevices(model.devices));
      setFigure("Active", served ? `${active}` : "");
      setFigure("Waiting", served ? `${waiting}` : "");
      setFigure("Skipped replicas", skipped ? `${skipped} (errors or no response)` : "");
      setFigure("Time to first token", formatDuration(model.first_byte_ms));
      setFigure("Answered", served ? `${answered}` : "");
      setFigure("5xx responses", failed ? `${failed}` : "");
    },
  };
}

/** Creates the chat and the examples. The chat stays while the IDs change. */
function createUse() {
  const which = el("select", { id: "which", on: { change: () => choose() } });
  const picker = el("p", { className: "pick" }, el("label", { htmlFor: "which" }, "Model ID"), which);
  const talk = el("div", {});
  const examples = el("div", {});
  let chat = null;
  let context = {};
  function choose() {
    chat?.choose(which.value);
    examples.replaceChildren(createExamples(context.feature, which.value, context.keys));
  }
  return {
    node: el("div", {}, picker, talk, examples),
    update(model, { keys }) {
      const feature = findFeature(model);
      const ids = feature ? (model.ids ?? []) : [];
      picker.hidden = ids.length < 2;
      if (context.feature !== feature) {
        chat = feature ? createChat(FEATURES[feature][0] === CHAT ? "chat" : feature === "TextEmbedding" ? "embedding" : "") : null;
        talk.replaceChildren(...(chat ? [chat.node] : []));
      }
      talk.hidden = examples.hidden = !ids.length;
      if (ids.length && JSON.stringify([feature, ids, keys]) !== context.text) {
        const before = which.value;
        which.replaceChildren(...ids.map((id) => el("option", {}, id)));
        if (ids.includes(before)) which.value = before;
        context = { feature, keys, text: JSON.stringify([feature, ids, keys]) };
        choose();
      }
      context.feature = feature;
      chat?.update(model);
    },
  };
}

function createDetails() {
  const conditions = el("tbody", {});
  const services = el("tbody", {});
  const controller = el("details", { hidden: true }, el("summary", {}, "Conditions"), createScrolled(conditions, ["Condition", "Status", "Reason", "Message"]));
  const routes = el("details", { hidden: true }, el("summary", {}, "Services"), createScrolled(services, ["Service", "Model IDs", "Endpoints", "Strategy", "Targets"]));
  return {
    node: el("section", { attributes: { "aria-label": "Details" } }, controller, routes),
    fill({ conditions: all, services: own }) {
      controller.hidden = !all.length;
      routes.hidden = !own.length;
      conditions.replaceChildren(...all.map((cells) => createLine(cells)));
      services.replaceChildren(...own.map((one) => createLine([one.name, one.ids.join("\n"), one.endpoints.join("\n") || "none", one.strategy, one.targets.join("\n")])));
    },
  };
}

function createScrolled(body, heads) {
  const head = el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name))));
  return el("div", { className: "scrolled", tabIndex: 0 }, el("table", {}, head, body));
}

function createLine([first, ...rest]) {
  return el("tr", {}, el("th", { scope: "row" }, first), ...rest.map((text) => el("td", {}, text)));
}
