// One model: how it is and why, what to do, how to ask it, and what its controller says.

import { box } from "./ask.js";
import { BASE, detail } from "./api.js";
import { STATES, badge, duration, el, family, prose, replicas, say } from "./dom.js";

const CHAT = "chat/completions";
/** Of each feature that can be asked for: the path, and the body beside the model. */
const WAYS = {
  TextGeneration: [CHAT, { messages: [{ role: "user", content: "What is a slipway?" }] }],
  TextEmbedding: ["embeddings", { input: "What is a slipway?" }],
  Reranking: ["rerank", { query: "What is a slipway?", documents: ["A ramp for ships.", "A kind of tea."] }],
  SpeechToText: ["audio/transcriptions", null],
};

/** By which of its features a model is asked; of one that tells none, as one that generates text. */
export function way({ features = [] }) {
  return Object.keys(WAYS).find((feature) => features.includes(feature)) ?? (features.length ? "" : "TextGeneration");
}

function json(value) {
  return JSON.stringify(value).replaceAll('":', '": ').replaceAll(',"', ', "').replaceAll(',{', ', {');
}

/** Commands and programs that ask a model, by what they are written in. */
export function examples(feature, id, keys) {
  const [path, body] = WAYS[feature];
  const authorized = keys ? ` \\\n  -H "Authorization: Bearer $API_KEY"` : "";
  const client = `import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${BASE}v1", api_key=os.environ["API_KEY"])\n`;
  const opened = keys ? client : client.replace("import os\n\n", "").replace('os.environ["API_KEY"]', '"none"');
  const curl = body
    ? `curl ${BASE}v1/${path}${authorized} \\\n  -H "Content-Type: application/json" \\\n  -d '${json({ model: id, ...body })}'`
    : `curl ${BASE}v1/${path}${authorized} \\\n  -F model=${id} -F file=@speech.wav`;
  const python = {
    TextGeneration: `${opened}answer = client.chat.completions.create(\n    model="${id}",\n    messages=${json(body?.messages ?? [])},\n)\nprint(answer.choices[0].message.content)`,
    TextEmbedding: `${opened}answer = client.embeddings.create(model="${id}", input="What is a slipway?")\nprint(answer.data[0].embedding)`,
    SpeechToText: `${opened}with open("speech.wav", "rb") as file:\n    answer = client.audio.transcriptions.create(model="${id}", file=file)\nprint(answer.text)`,
  }[feature];
  return { curl, ...(python && { Python: python }) };
}

/** The view of one model: its node, and how to show another overview in it. */
export function model({ kind, namespace, name }) {
  const title = name;
  const parts = { head: head(name), why: why(), facts: facts(), asking: asking(), told: told() };
  const gone = el("p", { hidden: true }, "There is no such model any more.");
  const node = el(
    "div",
    { className: "model" },
    el("p", { className: "back" }, el("a", { href: "#/" }, "← All models")),
    ...Object.values(parts).map((part) => part.node),
    gone,
  );
  let seen = "";

  function show(overview) {
    const found = overview.models.find((one) => one.kind === kind && (one.namespace ?? "") === namespace && one.name === name);
    gone.hidden = Boolean(found);
    for (const part of Object.values(parts)) if (part !== parts.head) part.node.hidden = !found;
    if (!found) return;
    for (const part of Object.values(parts)) part.update(found, overview);
    const now = JSON.stringify([found.state, found.reason, found.message, found.ready, found.ids]);
    if (now !== seen) detail(found).then(parts.told.fill, () => { seen = ""; });
    seen = now;
  }

  return { node, show, title };
}

function head(name) {
  const state = el("span", {});
  const under = el("p", { className: "muted" });
  return {
    node: el("div", {}, el("div", { className: "top" }, el("h1", { tabIndex: -1 }, name), state), under),
    update(model) {
      if (state.dataset.state !== model.state) {
        state.replaceChildren(badge(model.state));
        state.dataset.state = model.state;
      }
      const created = model.created ? `since ${new Date(model.created * 1000).toLocaleDateString()}` : "";
      say(under, [family(model.kind), model.namespace, model.source, created].filter(Boolean).join(" · "));
    },
  };
}

function why() {
  const meaning = el("p", {});
  const reason = el("p", { className: "reason" });
  const message = el("p", { className: "message" });
  const advice = el("p", {});
  const todo = el("div", {}, el("h3", {}, "What to do"), advice);
  const conflicts = el("ul", { className: "conflicts" });
  const node = el("section", { attributes: { "aria-label": "How it is" } }, meaning, reason, message, conflicts, todo);
  return {
    node,
    update({ state, reason: word = "", message: text = "", advice: does = "", conflicts: amiss = [] }) {
      const [, tone, means] = STATES[state] ?? ["", "calm", ""];
      const fine = ["ready", "asleep", "stopped"].includes(state);
      node.className = `why ${amiss.length && tone === "good" ? "warn" : tone}`;
      say(meaning, means);
      say(reason, fine ? "" : word);
      say(message, fine || text === means ? "" : text);
      if (advice.dataset.text !== does) advice.replaceChildren(...prose(does));
      advice.dataset.text = does;
      todo.hidden = !does;
      node.classList.toggle("nothing", state === "ready" && !amiss.length);
      if (conflicts.dataset.text !== amiss.join("\n")) conflicts.replaceChildren(...amiss.map((one) => el("li", {}, one)));
      conflicts.dataset.text = amiss.join("\n");
    },
  };
}

function facts() {
  const list = el("dl", {});
  const values = new Map();
  function fact(label, text) {
    if (!values.has(label)) {
      values.set(label, el("dd", {}));
      list.append(el("div", {}, el("dt", {}, label), values.get(label)));
    }
    const value = values.get(label);
    say(value, text);
    value.parentElement.hidden = !text;
  }
  return {
    node: el("section", { className: "facts", attributes: { "aria-label": "Figures" } }, list),
    update(model) {
      const { ids = [], active = 0, waiting = 0, answered = 0, failed = 0, passed_over: passedOver = 0 } = model;
      const served = ids.length > 0;
      fact("Replicas", replicas(model));
      fact("Under way", served ? `${active}` : "");
      fact("Waiting", served ? `${waiting}` : "");
      fact("Passed over", passedOver ? `${passedOver}: answers errors or nothing` : "");
      fact("First byte", duration(model.first_byte_ms));
      fact("Answered", served ? `${answered}` : "");
      fact("Failed", failed ? `${failed}` : "");
    },
  };
}

function asking() {
  const node = el("div", {});
  let before = "";
  return {
    node,
    update(model, { keys }) {
      const feature = way(model);
      const ids = model.ids ?? [];
      const now = JSON.stringify([ids, feature, keys]);
      if (now !== before) node.replaceChildren(...(ids.length && feature ? [how(feature, ids, keys)] : []));
      before = now;
      node.firstChild?.tell?.(model.state);
    },
  };
}

function how(feature, ids, keys) {
  const asked = box(WAYS[feature][0] === CHAT ? "chat" : feature === "TextEmbedding" ? "embedding" : "");
  const which = el("select", { id: "which", on: { change: () => show() } }, ...ids.map((id) => el("option", {}, id)));
  const chooser = ids.length > 1 ? el("p", { className: "pick" }, el("label", { htmlFor: "which" }, "By the id"), which) : "";
  const places = el("div", {});
  function show() {
    const texts = Object.entries(examples(feature, which.value, keys));
    places.replaceChildren(...texts.map(([language, text]) => snippet(language, text)));
    asked?.choose(which.value);
  }
  const hint = keys ? el("p", { className: "muted" }, ...prose("Put your key into the variable `API_KEY` first.")) : "";
  const section = el("section", {}, el("h2", {}, "Ask it"), chooser, asked ? asked.node : "", el("h2", {}, "Ask it from elsewhere"), hint, places);
  section.tell = (state) => asked?.tell(state);
  show();
  return section;
}

function snippet(language, text) {
  const code = el("pre", { tabIndex: 0, attributes: { "aria-label": language } }, text);
  const button = el("button", { type: "button", className: "quiet", attributes: { "aria-label": `Copy ${language}` }, on: { click: () => copy() } }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // without TLS a browser has no clipboard for pages
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }
  return el("div", { className: "snippet" }, el("div", { className: "bar" }, el("span", {}, language), button), code);
}

function told() {
  const conditions = el("tbody", {});
  const services = el("tbody", {});
  const controller = el("details", { hidden: true }, el("summary", {}, "Its conditions"), scrolled(conditions, ["Condition", "Status", "Reason", "Message"]));
  const routes = el("details", { hidden: true }, el("summary", {}, "Its Services"), scrolled(services, ["Service", "Ids", "Endpoints", "Choice", "Canary"]));
  return {
    node: el("section", {}, controller, routes),
    update() {},
    fill({ conditions: all, services: own }) {
      controller.hidden = !all.length;
      routes.hidden = !own.length;
      conditions.replaceChildren(...all.map((cells) => line(cells)));
      services.replaceChildren(...own.map((one) => line([one.name, one.ids.join("\n"), one.endpoints.join("\n") || "none", one.strategy, one.targets.join("\n")])));
    },
  };
}

function scrolled(body, heads) {
  const head = el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name))));
  return el("div", { className: "scrolled", tabIndex: 0 }, el("table", {}, head, body));
}

function line([first, ...rest]) {
  return el("tr", {}, el("th", { scope: "row" }, first), ...rest.map((text) => el("td", {}, text)));
}

