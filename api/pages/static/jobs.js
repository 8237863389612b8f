"use strict";
// Submits and cancels jobs, and keeps the jobs on the page up to date.

const shown = (us) => (us === undefined ? "-" : us < 1000 ? us.toFixed(2) : us.toFixed(0));

function show(place, job) {
  const field = (name) => place.querySelector(`[data-field=${name}]`);
  const put = (name, text) => { const found = field(name); if (found) found.textContent = text; };
  const progress = job.progress;
  put("state", job.cancelling && job.state === "running" ? "cancelling" : job.state);
  put("reason", job.reason);
  if (job.state !== "queued") put("waits", "");
  put("trials", progress.of ? `${progress.trials} (${progress.of} requested)` : "-");
  put("shapes", `${progress.shapes_done ?? 0} of ${progress.shapes ?? job.shapes.length}`);
  put("best", shown(progress.best_us));
  put("clock", progress.clock ?? "");
  const bar = field("bar"), problem = field("problem");
  if (bar && progress.of) { bar.max = progress.of; bar.value = progress.trials; }
  if (problem && progress.scope) { problem.href = `/problems/${progress.scope}`; problem.hidden = false; }
}

function follow(place) {
  const events = new EventSource(`/v1/jobs/${place.dataset.job}/events`);
  events.addEventListener("job", (event) => {
    const job = JSON.parse(event.data);
    show(place, job);
    if (!["queued", "running"].includes(job.state)) {
      events.close();
      document.getElementById("cancel")?.remove();
    }
  });
}

async function send(method, path, token, body) {
  const headers = { authorization: `Bearer ${token}` };
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail ?? `the server answered ${answer.status}`);
  return found;
}

// The token stays in this tab. The user may have typed it before this script was loaded.
function remembered(form) {
  const field = form.elements.token;
  field.value ||= sessionStorage.getItem("token") ?? "";
  return () => { sessionStorage.setItem("token", field.value); return field.value; };
}

function dims(text) {
  return Object.fromEntries(text.split(",").map((part) => {
    const [name, size] = part.split("=").map((side) => side.trim());
    if (!name || !size) throw new Error(`shape is '${text}'; expected sizes such as M=1000,N=8192`);
    return [name, /^[0-9]+$/.test(size) ? Number(size) : { true: true, false: false }[size.toLowerCase()] ?? size];
  }));
}

// Without this script, the browser would send the form itself, with the token in the address. So its button waits.
function onSubmit(id, act) {
  const form = document.getElementById(id);
  if (!form) return;
  const token = remembered(form), fault = document.getElementById("fault");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fault.textContent = "";
    try { await act(form, token()); } catch (error) { fault.textContent = error.message; }
  });
  form.querySelector("button").disabled = false;
}

onSubmit("submit", async (form, token) => {
  const fields = new FormData(form);
  const shapes = fields.get("dims").split(";").map((text) => text.trim()).filter(Boolean).map(dims);
  if (!shapes.length && fields.get("search") !== "retune") throw new Error("shapes is empty; expected sizes such as M=1000,N=8192");
  const body = { shapes, priority: Number(fields.get("priority")) };
  for (const name of ["kernel", "dtype", "device", "search"]) body[name] = fields.get(name);
  if (fields.get("trials")) body.trials = Number(fields.get("trials"));
  const job = await send("POST", "/v1/jobs", token, body);
  location.href = `/jobs/${job.id}`;
});
onSubmit("cancel", (form, token) => send("DELETE", `/v1/jobs/${form.dataset.number}`, token));
document.querySelectorAll("[data-live]").forEach(follow);
