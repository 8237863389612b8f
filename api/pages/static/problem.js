// Makes a problem's page an instrument: charts that answer, one selection for all of them and the table.
import { showDetails } from "./details.js";
import { element } from "./format.js";
import { Parallel } from "./parallel.js";
import { Scatter } from "./scatter.js";
import { afterPaint, whenSeen } from "./seen.js";
import { Table } from "./table.js";
import { load, Selection } from "./trials.js";

const instrument = document.getElementById("instrument");
const path = instrument.dataset.path;

function chartsOf(trials) {
  const evaluations = trials.ordinal.filter((each) => each !== null).length;
  const charts = trials.varied.map((parameter) => ({
    title: `us by ${parameter.name}`, labels: parameter.values, at: (trial) => (parameter.codes[trial] < 0 ? NaN : parameter.codes[trial]),
  }));
  const course = { title: "us by evaluation, and the best so far", labels: null, isCourse: true, at: (trial) => trials.ordinal[trial] ?? NaN };
  return evaluations > 1 ? [...charts, course] : charts;
}

function tools(selection) {
  const form = document.getElementById("narrow"), { status, within } = form.elements;
  const clear = document.getElementById("clear");
  const percent = Number(within.value);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => selection.narrow(status.value, within.checked ? percent : null));
  form.querySelector("button").hidden = true;
  clear.addEventListener("click", () => selection.mark(null));
  const show = () => {
    clear.hidden = selection.marked === null;
    const chosen = selection.chosen(), best = chosen.length ? selection.trials.time[chosen[0]] : NaN;
    document.getElementById("tally").textContent = selection.marked
      ? `${chosen.length} trials marked${best === best ? `, the fastest ${best.toFixed(2)} us` : ""}` : `${selection.shown.length} trials`;
  };
  selection.addEventListener("change", show);
  show();
}

async function start() {
  const trials = await load(`${path}/trials.json`);
  const form = document.getElementById("narrow").elements;
  const selection = new Selection(trials, { status: form.status.value, within: form.within.checked ? Number(form.within.value) : null });
  const home = document.getElementById("charts"), charts = chartsOf(trials);
  const places = charts.map(() => element("div", { class: "place" }));
  home.append(...places);
  // Each is made when it is seen: a problem may have a dozen parameters.
  places.forEach((place, n) => whenSeen(place, () => new Scatter(place, selection, charts[n])));
  new Table(selection, path);
  showDetails(document.getElementById("details"), document.getElementById("spoken"), selection, path);
  tools(selection);
  const parallel = document.getElementById("parallel"), due = trials.varied.length >= 2 && trials.best === trials.best;
  parallel.classList.toggle("due", due); // its place is kept, so that nothing below moves when it is drawn
  instrument.dataset.ready = "";
  if (!due) return;
  afterPaint(() => whenSeen(parallel, () => new Parallel(parallel, selection))); // thousands of lines; the dots come first
}

start();
