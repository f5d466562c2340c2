// The box that asks a model one question and shows the answer as it comes.

import { ask, events } from "./api.js";
import { duration, el, say } from "./dom.js";

const MOST_TOKENS = 512;

/** A form for one question, or null for models that take none as text. `kind`: chat or embedding. */
export function box(kind) {
  if (!kind) return null;
  let id = "";
  let state = "";
  let running = null;
  const question = el("textarea", { id: "question", rows: 2, required: true, value: "What is a slipway?", on: { keydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); } } });
  const button = el("button", { type: "submit" }, "Ask");
  const stop = el("button", { type: "button", className: "quiet", hidden: true, on: { click: () => running?.abort() } }, "Stop");
  const progress = el("span", { className: "muted", attributes: { role: "status" } });
  const thought = el("p", { className: "muted message" });
  const answer = el("p", { className: "message" });
  const failure = el("p", { className: "failure", attributes: { role: "alert" } });
  const output = el("div", { className: "answer", hidden: true, attributes: { role: "region", "aria-label": "Answer", "aria-live": "polite" } }, thought, answer, failure);
  const form = el(
    "form",
    { on: { submit: (event) => { event.preventDefault(); run(); } } },
    el("label", { htmlFor: "question" }, kind === "chat" ? "Question" : "Text"),
    question,
    el("div", { className: "bar" }, button, stop, progress),
    output,
  );

  async function run() {
    running = new AbortController();
    const began = performance.now();
    const passed = () => duration(Math.round(performance.now() - began));
    button.disabled = true;
    stop.hidden = output.hidden = false;
    output.setAttribute("aria-busy", "true");
    for (const node of [thought, answer, failure]) say(node, "");
    say(progress, waiting(state));
    let first = "";
    try {
      for await (const [kindOf, text] of parts(kind, id, question.value, running.signal)) {
        if (!first) {
          first = `First byte after ${passed()}`;
          say(progress, `${first}. Answering …`);
        }
        (kindOf === "thought" ? thought : answer).append(text);
      }
      say(progress, `${first || "An empty answer"}, all of it after ${passed()}.`);
    } catch (error) {
      const stopped = error.name === "AbortError";
      say(progress, stopped ? "Stopped." : "");
      say(failure, stopped ? "" : error.message);
    } finally {
      running = null;
      button.disabled = false;
      stop.hidden = true;
      output.setAttribute("aria-busy", "false");
      output.hidden = !output.textContent;
    }
  }

  return {
    node: form,
    choose(model) { id = model; },
    tell(now) {
      state = now;
      if (running && !answer.textContent && !thought.textContent) say(progress, waiting(state));
    },
  };
}

function waiting(state) {
  if (state === "asleep") return "Waiting. The request starts a replica …";
  if (state === "starting") return "Waiting for a replica …";
  return "Waiting for the answer …";
}

async function* parts(kind, model, text, signal) {
  if (kind === "embedding") {
    const { data } = await (await ask("embeddings", { model, input: text }, signal)).json();
    const numbers = data[0].embedding;
    yield ["answer", `${numbers.length} numbers: ${numbers.slice(0, 8).map((one) => one.toFixed(4)).join(", ")} …`];
    return;
  }
  const body = { model, messages: [{ role: "user", content: text }], max_tokens: MOST_TOKENS, stream: true };
  for await (const { choices = [] } of events(await ask("chat/completions", body, signal))) {
    const delta = choices[0]?.delta ?? {};
    const thinking = delta.reasoning_content ?? delta.reasoning;
    if (thinking) yield ["thought", thinking];
    if (delta.content) yield ["answer", delta.content];
  }
}
