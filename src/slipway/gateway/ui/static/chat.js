// The chat: sends messages to a model through the gateway, and shows each answer as it arrives.

import { post, readEvents } from "./api.js";
import { el, formatDuration, setText } from "./dom.js";

const MAX_TOKENS = 512;
/** In milliseconds. A faster answer was buffered on the way: its speed is not that of the model. */
const LEAST_TIME = 50;
const WAITING = { asleep: "Waiting. This request starts a replica…", starting: "Waiting for a replica…" };

/** Creates a chat, or returns null for models that take no text. `kind`: chat or embedding. */
export function createChat(kind) {
  if (!kind) return null;
  const isChat = kind === "chat";
  const history = [];
  let id = "";
  let state = "";
  let request = null;
  const system = el("textarea", { id: "system", rows: 2 });
  const limit = el("input", { type: "number", id: "limit", min: 1, value: MAX_TOKENS });
  const settings = el(
    "details",
    { hidden: !isChat },
    el("summary", {}, "Settings"),
    el("label", { htmlFor: "system" }, "System prompt"),
    system,
    el("label", { htmlFor: "limit" }, "Maximum tokens in an answer"),
    limit,
  );
  const turns = el("div", { className: "turns", hidden: true, attributes: { role: "log", "aria-label": "Conversation" } });
  const message = el("textarea", { id: "message", rows: 2, required: true, value: "What is a slipway?", on: { keydown: submitOnEnter } });
  const button = el("button", { type: "submit" }, "Send");
  const stop = el("button", { type: "button", className: "quiet", hidden: true, on: { click: () => request?.abort() } }, "Stop");
  const restart = el("button", { type: "button", className: "quiet", hidden: true, on: { click: () => clear() } }, "New chat");
  const progress = el("span", { className: "muted", attributes: { role: "status" } });
  const form = el(
    "form",
    { on: { submit: (event) => { event.preventDefault(); if (!request) run(message.value.trim()); } } },
    settings,
    el("label", { htmlFor: "message" }, isChat ? "Message" : "Text"),
    message,
    el("div", { className: "bar" }, button, stop, restart, progress),
  );
  const unavailable = el("p", { className: "muted", hidden: true }, "This model cannot answer now.");

  async function run(text) {
    if (!text) return;
    const own = (request = new AbortController());
    const turn = createTurn(text, id);
    turns.append(turn.node);
    setBusy(true);
    message.value = "";
    setText(progress, WAITING[state] ?? "Waiting for the answer…");
    const meter = createMeter();
    try {
      for await (const part of readParts(buildRequest(text), own.signal)) {
        meter.count(part);
        turn.add(part);
        if (part.text) setText(progress, "Answering…");
      }
      setText(progress, "");
      turn.end(isChat ? meter.report() : "");
    } catch (error) {
      if (request !== own) return; // a new chat has begun
      const stopped = error.name === "AbortError";
      setText(progress, stopped ? "Stopped." : "");
      turn.fail(stopped ? "" : error.message);
      if (!turn.answer()) message.value ||= text;
    }
    if (turn.answer()) history.push({ role: "user", content: text }, { role: "assistant", content: turn.answer() });
    request = null;
    setBusy(false);
  }

  function buildRequest(text) {
    if (!isChat) return ["embeddings", { model: id, input: text }];
    const prompt = system.value.trim();
    const messages = [...(prompt ? [{ role: "system", content: prompt }] : []), ...history, { role: "user", content: text }];
    const most = limit.valueAsNumber;
    return ["chat/completions", { model: id, messages, ...(most > 0 && { max_tokens: most }), stream: true, stream_options: { include_usage: true } }];
  }

  function setBusy(busy) {
    button.disabled = busy;
    stop.hidden = !busy;
    turns.hidden = restart.hidden = !turns.childElementCount;
    turns.setAttribute("aria-busy", `${busy}`);
  }

  function clear() {
    request?.abort();
    request = null;
    history.length = 0;
    turns.replaceChildren();
    setText(progress, "");
    setBusy(false);
    message.focus();
  }

  return {
    node: el("section", { attributes: { "aria-label": isChat ? "Chat" : "Try it" } }, el("h2", {}, isChat ? "Chat" : "Try it"), unavailable, turns, form),
    choose(model) { id = model; },
    update(model) {
      state = model.state;
      const answers = model.ready > 0 || state in WAITING;
      form.hidden = !answers && !request;
      unavailable.hidden = !form.hidden;
    },
  };
}

function submitOnEnter(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  event.target.form.requestSubmit();
}

function createTurn(text, model) {
  const thought = el("p", { className: "muted message" });
  const answer = el("p", { className: "message" });
  const failure = el("p", { className: "failure", attributes: { role: "alert" } });
  const figures = el("p", { className: "under" });
  const reply = el("div", { className: "turn", hidden: true }, el("p", { className: "under" }, model), thought, answer, failure, figures);
  return {
    node: el("div", {}, el("div", { className: "turn own" }, el("p", { className: "under" }, "You"), el("p", { className: "message" }, text)), reply),
    answer: () => answer.textContent,
    add({ text: more = "", thinking }) {
      if (more) (thinking ? thought : answer).append(more);
      reply.hidden &&= !more;
    },
    fail(message) {
      setText(failure, message);
      reply.hidden &&= !message;
    },
    end(report) {
      setText(figures, report);
      reply.hidden &&= !report;
    },
  };
}

/** Creates a meter of the tokens of one answer. Without the engine's own number it counts the parts. */
function createMeter() {
  const start = performance.now();
  let [first, last, parts, tokens, finish] = [0, 0, 0, 0, ""];
  return {
    count(part) {
      tokens = part.tokens ?? tokens;
      finish = part.finish ?? finish;
      if (!part.text) return;
      last = performance.now();
      first ||= last;
      parts += 1;
    },
    report() {
      if (!parts) return "The answer is empty.";
      const number = tokens || parts;
      const rate = number > 1 && last - first >= LEAST_TIME ? `${((1000 * (number - 1)) / (last - first)).toFixed(1)} tokens/s` : "";
      const size = `${tokens ? "" : "about "}${number} token${number === 1 ? "" : "s"}`;
      const cut = finish === "length" ? "stopped at the maximum" : "";
      return [size, rate, `first token after ${formatDuration(Math.round(first - start))}`, cut].filter(Boolean).join(" · ");
    },
  };
}

/** Yields the parts of an answer: text, whether the model is thinking, the number of tokens, and why the answer ended. */
async function* readParts([path, body], signal) {
  const response = await post(path, body, signal);
  if (path === "embeddings") {
    const numbers = (await response.json()).data[0].embedding;
    yield { text: `${numbers.length} numbers: ${numbers.slice(0, 8).map((one) => one.toFixed(4)).join(", ")}…` };
    return;
  }
  for await (const { choices = [], usage } of readEvents(response)) {
    const { delta = {}, finish_reason: finish } = choices[0] ?? {};
    const thinking = delta.reasoning_content ?? delta.reasoning;
    if (thinking) yield { text: thinking, thinking: true };
    yield { text: delta.content ?? "", tokens: usage?.completion_tokens, finish: finish ?? undefined };
  }
}
