// The trial that is pointed at: its time, status and config beside the dot, and aloud for those who use the keyboard.
import { element, us } from "./format.js";

const FAR = 120; // pixels

export function showDetails(box, spoken, selection, path) {
  const { trials } = selection;
  const hide = () => { box.hidden = true; };
  let shownAt = 0;
  addEventListener("scroll", () => { if (Math.abs(scrollY - shownAt) > FAR) hide(); }, { passive: true }); // the dot is elsewhere now

  selection.addEventListener("point", ({ detail }) => {
    const trial = selection.pointed;
    if (trial < 0) { hide(); return; }
    if (detail.place) { // a row of the table marks its dots; the row itself has the details
      box.replaceChildren(...described(trials, trial, selection.pinned === trial ? path : null));
      box.hidden = false;
      move(box, detail.place);
      shownAt = scrollY;
    } else hide();
    if (detail.spoken) spoken.textContent = sentence(trials, trial);
  });
  selection.addEventListener("change", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (selection.pointed >= 0) selection.pin(-1);
    else if (selection.marked) selection.mark(null);
  });
}

function described(trials, trial, path) {
  const ran = trials.time[trial] === trials.time[trial];
  const ratio = trials.time[trial] / trials.best;
  const figure = ran ? `${us(trials.time[trial])} us` : trials.statuses[trials.status[trial]];
  const more = [ran ? (ratio > 1 ? `${ratio.toFixed(3)}x the best` : "the best") : trials.reasons[trials.reason[trial]]];
  if (ran) more.push(trials.outcome(trial));
  if (trials.ordinal[trial] !== null) more.push(`evaluation ${trials.ordinal[trial]}`);
  const config = element("dl", { class: "config" });
  for (const [name, value] of trials.config(trial)) config.append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  const found = [element("strong", {}, figure), element("p", {}, more.filter(Boolean).join(", ")), config];
  if (path && trials.winner !== null && trial !== trials.winner) {
    found.push(element("p", {}, element("a", { href: `${path}/compare?a=${trials.winner}&b=${trial}` }, "Compare with the winner")));
  }
  return found;
}

function sentence(trials, trial) {
  const config = trials.config(trial).map(([name, value]) => `${name} ${value}`).join(", ");
  const time = trials.time[trial];
  return `${time === time ? `${us(time)} microseconds, ` : ""}${trials.outcome(trial)}: ${config}`;
}

function move(box, place) {
  const width = Math.min(box.offsetWidth, innerWidth - 16), height = box.offsetHeight;
  const left = place.x + 16 + width > innerWidth ? place.x - 16 - width : place.x + 16;
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(8, Math.min(place.y - height / 2, innerHeight - height - 8))}px`;
}
