// The page: polls the gateway while it is visible, and shows the list or one model.

import { fetchOverview, key } from "./api.js";
import { el, formatAge, formatClock, setText } from "./dom.js";
import { createList } from "./list.js";
import { createModel } from "./model.js";

const PAUSE = 3000;
const main = document.getElementById("main");
const notices = document.getElementById("notices");
const updated = document.getElementById("updated");
const forget = document.getElementById("forget");
const footer = document.getElementById("footer");

let view = null;
let latest = null;
let text = "";
let answered = 0;
let timer = 0;
let list = null;

/** Returns the view for the address. The list is kept, with its search. */
function createView() {
  const [kind, namespace, name] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (name) return createModel({ kind, namespace: namespace === "-" ? "" : namespace, name });
  list ??= createList();
  return list;
}

function openView(moved) {
  view = createView();
  document.title = `${view.title} · Slipway`;
  view.show(latest);
  main.replaceChildren(view.node);
  if (moved) {
    scrollTo(0, 0);
    view.node.querySelector("h1").focus();
  }
}

async function refresh() {
  clearTimeout(timer);
  const sent = key.get();
  try {
    const current = await fetchOverview();
    answered = Date.now() / 1000;
    forget.hidden = !sent;
    if (current !== text || !view) {
      text = current;
      latest = JSON.parse(current);
      showFooter(latest);
      if (view) view.show(latest);
      else openView(false);
    }
    notify(listNotices(latest));
  } catch (error) {
    if (error.status === 401 || error.status === 403) return askForKey(sent ? describeRejection(error) : "");
    forget.hidden = !sent;
    notify([describeError(error)]);
  }
  tick();
  if (!document.hidden) timer = setTimeout(refresh, PAUSE);
}

/** Shows the age of the data. Without a change nothing is read aloud: this is no live region. */
function tick() {
  setText(updated, answered ? `Updated ${formatAge(answered)} ago` : "");
  view?.tick?.();
}

/** A token can be rejected for reasons that its owner must know. */
function describeRejection({ message, code }) {
  return code && code !== "invalid_api_key" ? message : "The gateway rejected this key.";
}

function describeError({ status, message, code }) {
  const since = answered ? ` Showing data from ${formatClock(answered)}.` : "";
  if (status === undefined) return `The page cannot show the gateway's response: ${message}`;
  if (status < 500 || code === "token_keys_unknown") return `${message}${since}`;
  return `The gateway's control process is unavailable (status ${status}). HAProxy still serves requests.${since}`;
}

function listNotices({ away_since: away, unread = [], counted }) {
  const lines = [];
  if (away) lines.push(`The cluster's API server has been unavailable since ${formatClock(away)}. Requests still work, but this page may be out of date.`);
  else if (unread.length) lines.push(`The gateway cannot read ${unread.join(", ")}. The log of its control process has the reason.`);
  if (!counted) lines.push("HAProxy returns no counters, so request figures are missing.");
  return lines;
}

function notify(lines) {
  if (notices.dataset.text === lines.join("\n")) return;
  notices.dataset.text = lines.join("\n");
  notices.replaceChildren(...lines.map((line) => el("p", {}, line)));
}

function showFooter({ version, replica }) {
  setText(footer, `Slipway ${version}${replica ? ` · Request figures from gateway pod ${replica}, since it started` : ""}`);
}

/** Shows the form for the key. */
function askForKey(failure) {
  view = latest = list = null;
  text = "";
  answered = 0;
  forget.hidden = true;
  notify([]);
  tick();
  setText(footer, "");
  document.title = "API key · Slipway";
  const field = el("input", { type: "password", id: "key", required: true, autocomplete: "off", spellcheck: false });
  const submit = (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    refresh();
  };
  main.replaceChildren(
    el(
      "form",
      { className: "enter", on: { submit } },
      el("h1", {}, "API key required"),
      el("label", { htmlFor: "key" }, "API key"),
      field,
      el("p", { className: "failure", attributes: { role: "alert" } }, failure),
      el("button", { type: "submit" }, "Show models"),
      el("p", { className: "muted" }, "The key stays in this tab until you close it."),
    ),
  );
  field.focus();
}

forget.addEventListener("click", () => {
  key.forget();
  askForKey("");
});
addEventListener("hashchange", () => {
  if (latest && !location.hash.startsWith("#main")) openView(true);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && latest) refresh();
});
setInterval(tick, 1000);
refresh();
