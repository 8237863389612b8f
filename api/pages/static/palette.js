// Ctrl-K: searches while one types, and goes with the arrow keys to what was found. The search page does it without scripts.
import { element } from "./format.js";

const PAUSE = 120;
let dialog = null, asked = 0, waiting = 0;

function made() {
  const field = element("input", { type: "search", "aria-label": "Search", placeholder: "row_reduce 910B4 M=1000", maxlength: 200, autocomplete: "off", spellcheck: "false" });
  const list = element("ul", { class: "hits" }), says = element("p", { role: "status", class: "soft" });
  const opened = element("dialog", { class: "palette", "aria-label": "Search" }, field, list, says);
  field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => look(field.value, list, says), PAUSE); });
  opened.addEventListener("keydown", (event) => onKey(event, field, list));
  opened.addEventListener("click", (event) => { if (event.target === opened) opened.close(); });
  document.body.append(opened);
  look("", list, says);
  return opened;
}

async function look(text, list, says) {
  const number = ++asked;
  const answer = await fetch(`/search?${new URLSearchParams({ q: text })}`, { headers: { accept: "text/html" } });
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (number !== asked) return; // a later one is under way
  const hits = found.getElementById("hits")?.children ?? [], fault = found.querySelector("[role=alert]");
  list.replaceChildren(...[...hits].map((hit) => document.importNode(hit, true)));
  list.dataset.of = text;
  says.textContent = fault ? fault.textContent : list.children.length ? "" : "Nothing is named like that.";
}

function onKey(event, field, list) {
  const links = [...list.querySelectorAll("a")], here = links.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    (links[here + step] ?? (step < 0 ? field : links.at(-1)))?.focus();
  } else if (event.key === "Enter" && here < 0) {
    event.preventDefault();
    if (list.dataset.of === field.value) links[0]?.click();
    else location.href = `/search?${new URLSearchParams({ q: field.value })}`;
  }
}

function open() {
  dialog ??= made();
  if (dialog.open) return;
  dialog.showModal();
  dialog.firstChild.select();
}

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  open();
});
const link = document.getElementById("find");
link.append(" ", element("kbd", {}, "Ctrl K"));
link.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own
  event.preventDefault();
  open();
});
