// The page: asks the gateway every few seconds while somebody looks, and shows the list or one model.

import { BASE, key, overview } from "./api.js";
import { clock, el, say } from "./dom.js";
import { list } from "./list.js";
import { model } from "./model.js";

const PAUSE = 3000;
const main = document.getElementById("main");
const notices = document.getElementById("notices");
const forget = document.getElementById("forget");
const footer = document.getElementById("footer");

let view = null;
let latest = null;
let text = "";
let answered = 0;
let timer = 0;
let models = null;

/** The view that the address asks for. The list is kept, with what was searched for. */
function chosen() {
  const [kind, namespace, name] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (name) return model({ kind, namespace: namespace === "-" ? "" : namespace, name });
  models ??= list();
  return models;
}

function open(moved) {
  view = chosen();
  document.title = `${view.title} · Slipway`;
  view.show(latest);
  main.replaceChildren(view.node);
  if (moved) {
    scrollTo(0, 0);
    view.node.querySelector("h1").focus();
  }
}

async function look() {
  clearTimeout(timer);
  const asked = key.get();
  try {
    const now = await overview();
    answered = Date.now() / 1000;
    forget.hidden = !asked;
    if (now !== text || !view) {
      text = now;
      latest = JSON.parse(now);
      tell(latest);
      if (view) view.show(latest);
      else open(false);
    }
    notify(told(latest));
  } catch (error) {
    if (error.status === 401) return enter(asked ? "The gateway does not know this key." : "");
    notify([unanswered(error)]);
  }
  if (!document.hidden) timer = setTimeout(look, PAUSE);
}

function unanswered({ status, message }) {
  const since = answered ? ` What is shown is from ${clock(answered)}.` : "";
  if (status === undefined) return `The page cannot show what the gateway said: ${message}`;
  if (status === 0) return `${message}${since}`;
  return `The gateway's control process does not answer (status ${status}). Requests are served on with what HAProxy knows.${since}`;
}

function told({ away_since: away, unread = [], counted }) {
  const lines = [];
  if (away) lines.push(`The cluster's API server has not answered since ${clock(away)}. Requests are served on; what is shown may be out of date.`);
  else if (unread.length) lines.push(`Nothing can be read of ${unread.join(", ")}: the log of the gateway's control process says why.`);
  if (!counted) lines.push("HAProxy does not tell its counters: requests are not shown.");
  return lines;
}

function notify(lines) {
  if (notices.dataset.text === lines.join("\n")) return;
  notices.dataset.text = lines.join("\n");
  notices.replaceChildren(...lines.map((line) => el("p", {}, line)));
}

function tell({ version, replica }) {
  say(footer, `Slipway ${version}${replica ? `. Requests as the replica ${replica} counts them, since it started` : ""}.`);
}

/** Asks for the key. */
function enter(refused) {
  view = latest = models = null;
  text = "";
  forget.hidden = true;
  notify([]);
  say(footer, "");
  document.title = "Key · Slipway";
  const field = el("input", { type: "password", id: "key", required: true, autocomplete: "off", spellcheck: false });
  const take = (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    look();
  };
  main.replaceChildren(
    el(
      "form",
      { className: "enter", on: { submit: take } },
      el("h1", {}, "This gateway asks for a key"),
      el("label", { htmlFor: "key" }, "API key"),
      field,
      el("p", { className: "failure", attributes: { role: "alert" } }, refused),
      el("button", { type: "submit" }, "Show the models"),
      el("p", { className: "muted" }, "It stays in this tab, and is forgotten with it."),
    ),
  );
  field.focus();
}

say(document.getElementById("where"), BASE.replace(/^https?:\/\//, "").replace(/\/$/, ""));
forget.addEventListener("click", () => {
  key.forget();
  enter("");
});
addEventListener("hashchange", () => {
  if (latest && !location.hash.startsWith("#main")) open(true);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && latest) look();
});
look();
