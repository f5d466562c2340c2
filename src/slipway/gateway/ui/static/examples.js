// Example requests for a model, in several languages.

import { BASE } from "./api.js";
import { createCopyButton, el, parseCode, setText } from "./dom.js";

export const CHAT = "chat/completions";
/** The path and the body of an example request, by feature. */
export const FEATURES = {
  TextGeneration: [CHAT, { messages: [{ role: "user", content: "What is a slipway?" }] }],
  TextEmbedding: ["embeddings", { input: "What is a slipway?" }],
  Reranking: ["rerank", { query: "What is a slipway?", documents: ["A ramp for ships.", "A kind of tea."] }],
  SpeechToText: ["audio/transcriptions", null],
};

let language = "curl";

/** Returns the feature to use in examples. A model without features is taken for one that generates text. */
export function findFeature({ features = [] }) {
  return Object.keys(FEATURES).find((feature) => features.includes(feature)) ?? (features.length ? "" : "TextGeneration");
}

/** Creates the section with the examples, one language at a time. */
export function createExamples(feature, id, keys) {
  const texts = writeExamples(feature, id, keys);
  const code = el("pre", { tabIndex: 0 });
  const buttons = Object.keys(texts).map((name) => el("button", { type: "button", className: "count", on: { click: () => choose(name) } }, name));
  function choose(name) {
    language = name;
    for (const button of buttons) button.setAttribute("aria-pressed", `${button.textContent === name}`);
    code.setAttribute("aria-label", name);
    setText(code, texts[name]);
  }
  choose(texts[language] ? language : "curl");
  const hint = keys ? el("p", { className: "muted" }, ...parseCode("Set the environment variable `API_KEY` to your key first.")) : "";
  const languages = el("div", { className: "counts", attributes: { role: "group", "aria-label": "Language" } }, ...buttons);
  const snippet = el("div", { className: "snippet" }, el("div", { className: "bar" }, languages, createCopyButton("example", code)), code);
  return el("section", {}, el("h2", {}, "Use the API"), hint, snippet);
}

function writeExamples(feature, id, keys) {
  const [path, body] = FEATURES[feature];
  const header = keys ? ` \\\n  -H "Authorization: Bearer $API_KEY"` : "";
  const curl = body
    ? `curl ${BASE}v1/${path}${header} \\\n  -H "Content-Type: application/json" \\\n  -d '${writeJson({ model: id, ...body })}'`
    : `curl ${BASE}v1/${path}${header} \\\n  -F model=${id} -F file=@speech.wav`;
  return { curl, ...writePython(feature, id, keys), ...writeNode(feature, id, keys), ...writeAnthropic(feature, id, keys) };
}

function writeJson(value) {
  return JSON.stringify(value).replaceAll('":', '": ').replaceAll(',"', ', "').replaceAll(",{", ", {");
}

const messages = writeJson(FEATURES.TextGeneration[1].messages);

function openPython(client, address, keys) {
  const key = keys ? 'os.environ["API_KEY"]' : '"none"';
  return `${keys ? "import os\n\n" : ""}from ${client.toLowerCase()} import ${client}\n\nclient = ${client}(base_url="${address}", api_key=${key})\n`;
}

function writePython(feature, id, keys) {
  const text = {
    TextGeneration: `answer = client.chat.completions.create(\n    model="${id}",\n    messages=${messages},\n)\nprint(answer.choices[0].message.content)`,
    TextEmbedding: `answer = client.embeddings.create(model="${id}", input="What is a slipway?")\nprint(answer.data[0].embedding)`,
    SpeechToText: `with open("speech.wav", "rb") as file:\n    answer = client.audio.transcriptions.create(model="${id}", file=file)\nprint(answer.text)`,
  }[feature];
  return text ? { Python: `${openPython("OpenAI", `${BASE}v1`, keys)}${text}` } : {};
}

function writeNode(feature, id, keys) {
  const text = {
    TextGeneration: `const answer = await client.chat.completions.create({\n  model: "${id}",\n  messages: [{ role: "user", content: "What is a slipway?" }],\n});\nconsole.log(answer.choices[0].message.content);`,
    TextEmbedding: `const answer = await client.embeddings.create({ model: "${id}", input: "What is a slipway?" });\nconsole.log(answer.data[0].embedding);`,
    SpeechToText: `const file = fs.createReadStream("speech.wav");\nconst answer = await client.audio.transcriptions.create({ model: "${id}", file });\nconsole.log(answer.text);`,
  }[feature];
  const files = feature === "SpeechToText" ? 'import fs from "node:fs";\n' : "";
  const key = keys ? "process.env.API_KEY" : '"none"';
  return text ? { "Node.js": `${files}import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${BASE}v1", apiKey: ${key} });\n${text}` } : {};
}

function writeAnthropic(feature, id, keys) {
  if (feature !== "TextGeneration") return {};
  const text = `answer = client.messages.create(\n    model="${id}",\n    max_tokens=512,\n    messages=${messages},\n)\nprint(answer.content[0].text)`;
  return { Anthropic: `${openPython("Anthropic", BASE.slice(0, -1), keys)}${text}` };
}
