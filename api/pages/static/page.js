"use strict";
// Draws the charts of a problem's page and copies its texts. The page's tables hold the same figures as the charts.

const style = getComputedStyle(document.documentElement);
const colour = (name) => style.getPropertyValue(name).trim();
const shown = (us) => (us < 100 ? us.toPrecision(3) : us.toFixed(0));

function axis(extra) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--soft"), grid: line, ticks: line, font: "12px system-ui, sans-serif", ...extra };
}

// A log scale for times that differ by more than 4x; for others a linear scale shows more.
function timeScale(times) {
  return Math.max(...times) > 4 * Math.min(...times) ? { distr: 3, log: 10 } : {};
}

function chart(place, title, xAxis, xScale, series, data, times) {
  const options = {
    title, width: place.clientWidth, height: 250, legend: { show: false }, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, ...xScale }, y: timeScale(times) },
    axes: [axis(xAxis), axis({ size: 56, values: (_, ticks) => ticks.map((t) => (t === null ? "" : shown(t))) })],
    series: [{}, ...series],
  };
  const drawn = new uPlot(options, data, place);
  new ResizeObserver(() => drawn.setSize({ width: place.clientWidth, height: 250 })).observe(place);
}

const dots = () => ({ paths: () => null, points: { show: true, size: 6, stroke: colour("--soft"), fill: colour("--soft") } });
const line = () => ({ stroke: colour("--accent"), width: 2, points: { show: true, size: 7, fill: colour("--accent") } });

function drawSpread(home, spread) {
  const place = home.appendChild(document.createElement("div"));
  // uPlot has one x for all series, so the first trial of each value carries the value's best time.
  const x = [], tried = [], best = [];
  let last = -1;
  spread.places.forEach((value, index) => {
    x.push(value); tried.push(spread.times_us[index]);
    best.push(value === last ? undefined : spread.best_us[value]);
    last = value;
  });
  const last_place = spread.labels.length - 1;
  const named = { splits: () => spread.labels.map((_, n) => n), values: (_, places) => places.map((n) => spread.labels[n]), space: 28 };
  if (spread.labels.length > 12) named.rotate = -60, named.size = 50;
  const margin = { range: [-0.3, last_place + 0.3] };
  chart(place, spread.name + ", us", named, margin, [dots(), { ...line(), spanGaps: true }], [x, tried, best], spread.times_us);
}

function drawCourse(place, course) {
  const stepped = { ...line(), points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) };
  const whole = { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] };
  chart(place, "us by evaluation, and the best so far", whole, {}, [dots(), stepped],
    [course.ordinals, course.times_us, course.best_us], course.times_us);
}

function drawAll() {
  const source = document.getElementById("drawn");
  if (!source || typeof uPlot === "undefined") return;
  const drawn = JSON.parse(source.textContent);
  const spreads = document.getElementById("spreads"), course = document.getElementById("course");
  if (spreads) drawn.spreads.forEach((spread) => drawSpread(spreads, spread));
  if (course && drawn.course.ordinals.length > 1) drawCourse(course, drawn.course);
}

function offerCopies() {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

offerCopies();
drawAll();
