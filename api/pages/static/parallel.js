// Parallel coordinates: a line per trial through its value of each parameter to its time.
import { colours, element, fitted, scale } from "./format.js";

const HEIGHT = 300, SIDE = 40, TOP = 34, BOTTOM = 12, NARROWEST = 58;
const MOST = 2000; // more lines would hide one another
const FASTEST = 20; // lines in the accent's colour
const REACH = 8;

export class Parallel {
  constructor(home, selection) {
    this.selection = selection;
    this.axes = [...selection.trials.varied];
    this.ranges = new Map(); // by axis: the pixels that its brush spans
    this.at = [];
    this.drawn = []; // a pointer may come before the first drawing
    this.lines = element("canvas");
    this.over = element("canvas", { tabindex: 0, role: "img" });
    this.body = element("div", { class: "chart" }, this.lines, this.over);
    this.note = element("p", { class: "hint" });
    home.append(element("h3", {}, "All parameters at once"), this.note, element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parallel coordinates" }, this.body));
    this.body.style.minWidth = `${(this.axes.length + 1) * NARROWEST}px`;
    this.listen();
    this.draw();
    new ResizeObserver(() => { if (this.body.clientWidth !== this.width) this.draw(); }).observe(this.body);
    selection.addEventListener("change", () => this.draw());
    selection.addEventListener("point", () => this.drawOver());
  }

  draw() {
    this.width = this.body.clientWidth;
    if (!this.width) return;
    const { selection, axes } = this, { trials } = selection;
    const context = fitted(this.lines, this.width, HEIGHT), colour = colours();
    this.overContext = fitted(this.over, this.width, HEIGHT);
    if (selection.marked === null) this.ranges.clear();
    const ran = selection.shown.filter((trial) => trials.time[trial] === trials.time[trial]);
    const marked = ran.filter((trial) => selection.isMarked(trial)), faint = selection.marked === null ? [] : ran.filter((trial) => !selection.marked[trial]);
    this.drawn = marked.slice(0, MOST);
    this.y = ran.length ? scale(trials.time[ran[0]], trials.time[ran.at(-1)], HEIGHT - BOTTOM, TOP) : null;
    this.at = Array.from({ length: axes.length + 1 }, (_, n) => SIDE + (this.width - 2 * SIDE) * n / axes.length);
    this.note.textContent = `${this.drawn.length < marked.length ? `The fastest ${MOST} of ${marked.length}` : `All ${marked.length}`} trials that ran, the fastest ${Math.min(FASTEST, this.drawn.length)} in blue. Drag along an axis to mark the trials that pass there.`;
    context.lineWidth = 1;
    this.stroke(context, [...faint.slice(0, MOST)], () => colour.line, () => 0.35);
    const rank = this.drawn.length;
    this.stroke(context, [...this.drawn].reverse(), (n) => (rank - n <= FASTEST ? colour.accent : colour.dot), (n) => 0.06 + 0.9 * (n / rank) ** 6);
    this.drawAxes(context, colour);
    this.drawOver();
    this.over.setAttribute("aria-label", `Parallel coordinates of ${this.drawn.length} trials. Arrow keys go from trial to trial, Enter pins one.`);
  }

  points(trial) {
    const found = this.axes.map((axis, n) => [this.at[n], this.height(axis, axis.codes[trial])]);
    found.push([this.at.at(-1), this.y.place(this.selection.trials.time[trial])]);
    return found;
  }

  height(axis, code) {
    const last = axis.values.length - 1;
    return HEIGHT - BOTTOM - 8 - (HEIGHT - BOTTOM - 16 - TOP) * (code < 0 ? -0.03 : code / last);
  }

  stroke(context, trials, colourOf, alphaOf) {
    trials.forEach((trial, n) => {
      context.strokeStyle = colourOf(n);
      context.globalAlpha = alphaOf(n);
      path(context, this.points(trial));
    });
    context.globalAlpha = 1;
  }

  drawAxes(context, colour) {
    context.font = "12px system-ui, sans-serif";
    context.lineWidth = 1;
    const names = [...this.axes.map((axis) => axis.name), "us"];
    const gap = this.at.length > 1 ? this.at[1] - this.at[0] : this.width;
    names.forEach((name, n) => {
      const x = this.at[n], axis = this.axes[n];
      context.strokeStyle = colour.soft;
      path(context, [[x, TOP - 4], [x, HEIGHT - BOTTOM]]);
      context.fillStyle = colour.ink;
      context.textAlign = n === 0 ? "left" : n === names.length - 1 ? "right" : "center";
      context.textBaseline = "bottom";
      const room = n === 0 || n === names.length - 1 ? gap / 2 + SIDE - 4 : gap - 6;
      context.fillText(clipped(context, name, room), n === 0 ? 0 : n === names.length - 1 ? this.width : x, n % 2 ? TOP - 18 : TOP - 6);
      const ticks = axis ? thinned(axis.values.map((value, code) => [this.height(axis, code), value])) : this.y?.ticks ?? [];
      context.textAlign = "left";
      context.textBaseline = "middle";
      for (const [y, label] of ticks) {
        const text = clipped(context, label, axis ? gap - 10 : SIDE - 4), width = context.measureText(text).width;
        context.globalAlpha = 0.75;
        context.fillStyle = colour.ground;
        context.fillRect(x + 3, y - 7, width + 2, 14);
        context.globalAlpha = 1;
        context.fillStyle = colour.ink;
        context.fillText(text, x + 4, y);
      }
    });
  }

  drawOver() {
    const context = this.overContext, { selection } = this, colour = colours();
    if (!context) return;
    context.clearRect(0, 0, this.width, HEIGHT);
    for (const [n, [from, to]] of this.ranges) {
      context.fillStyle = colour.accent;
      context.globalAlpha = 0.25;
      context.fillRect(this.at[n] - 7, Math.min(from, to), 14, Math.abs(to - from));
      context.globalAlpha = 1;
    }
    for (const trial of new Set([selection.pinned, selection.pointed])) {
      if (trial < 0 || !this.y || selection.trials.time[trial] !== selection.trials.time[trial]) continue;
      context.strokeStyle = colour.ink;
      context.lineWidth = 2.5;
      path(context, this.points(trial));
    }
  }

  listen() {
    const { over, selection } = this;
    let axis = -1, from = 0;
    over.addEventListener("pointerdown", (event) => {
      axis = this.axisAt(event.offsetX);
      from = event.offsetY;
      over.setPointerCapture(event.pointerId);
    });
    over.addEventListener("pointermove", (event) => {
      if (event.buttons && axis >= 0 && Math.abs(event.offsetY - from) > 4) {
        this.ranges.set(axis, [from, event.offsetY]);
        this.drawOver();
      } else if (!event.buttons) this.point(this.nearest(event.offsetX, event.offsetY));
    });
    over.addEventListener("pointerup", (event) => {
      if (axis >= 0 && Math.abs(event.offsetY - from) > 4) selection.mark(this.passing());
      else {
        const trial = this.nearest(event.offsetX, event.offsetY);
        selection.pin(trial, trial < 0 ? null : this.screen(trial, event.offsetX));
      }
      axis = -1;
    });
    over.addEventListener("pointerleave", () => selection.point(selection.pinned));
    over.addEventListener("keydown", (event) => this.onKey(event));
  }

  axisAt(x) { return this.at.findIndex((place) => Math.abs(place - x) < 14); }

  // The trials that pass through all brushed ranges.
  passing() {
    const { selection } = this, { time } = selection.trials;
    return selection.shown.filter((trial) => time[trial] === time[trial] && [...this.ranges].every(([n, [from, to]]) => {
      const y = this.points(trial)[n][1];
      return y >= Math.min(from, to) - 1 && y <= Math.max(from, to) + 1;
    }));
  }

  nearest(x, y) {
    const right = this.at.findIndex((place) => place >= x);
    if (right < 1) return -1;
    const part = (x - this.at[right - 1]) / (this.at[right] - this.at[right - 1]);
    let found = -1, least = REACH;
    for (const trial of this.drawn) {
      const points = this.points(trial), height = points[right - 1][1] * (1 - part) + points[right][1] * part;
      if (Math.abs(height - y) < least) { least = Math.abs(height - y); found = trial; }
    }
    return found;
  }

  screen(trial, x = this.at.at(-1)) {
    const box = this.over.getBoundingClientRect();
    return { x: box.left + x, y: box.top + this.points(trial).at(-1)[1] };
  }

  point(trial, spoken = false) {
    const { selection } = this;
    selection.point(trial < 0 ? selection.pinned : trial, trial < 0 ? null : this.screen(trial), spoken);
  }

  onKey(event) {
    const last = this.drawn.length - 1, here = this.drawn.indexOf(this.selection.pointed);
    const next = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: last }[event.key];
    if (next !== undefined && last >= 0) {
      event.preventDefault();
      this.point(this.drawn[Math.max(0, Math.min(last, next))], true);
    } else if (event.key === "Enter" && here >= 0) this.selection.pin(this.drawn[here], this.screen(this.drawn[here]));
  }
}

function path(context, points) {
  context.beginPath();
  points.forEach(([x, y], n) => (n ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function clipped(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

// At least 14 pixels between labels.
function thinned(ticks) {
  let free = Infinity;
  return ticks.filter(([y]) => { const fits = y <= free; if (fits) free = y - 14; return fits; });
}
