// Time against one figure of each trial. Trials that failed stand in a lane of their own above the times.
import { colours, element, fitted, scale, steps } from "./format.js";

const HEIGHT = 250, LEFT = 48, RIGHT = 8, TOP = 6, LANE = 18, BOTTOM = 30;
const REACH = 14; // pixels from a dot at which it is pointed at
const LEAST_DRAG = 5;

export class Scatter {
  // `at` returns a trial's place on the x axis, NaN if it has none. `labels` name the places 0, 1, .. or are null.
  constructor(home, selection, { title, at, labels, isCourse = false }) {
    Object.assign(this, { selection, title, labels, isCourse });
    const { trials } = selection;
    this.x = Float64Array.from({ length: trials.count }, (_, trial) => at(trial));
    this.px = new Float32Array(trials.count);
    this.py = new Float32Array(trials.count);
    this.drawn = []; // a pointer may come before the first drawing
    this.dots = element("canvas");
    this.ring = element("canvas", { tabindex: 0, role: "img" });
    const body = element("div", { class: "chart" }, this.dots, this.ring);
    home.append(element("h3", {}, title), body);
    this.body = body;
    this.listen();
    this.draw();
    new ResizeObserver(() => { if (this.body.clientWidth !== this.width) this.draw(); }).observe(body);
    selection.addEventListener("change", () => this.draw());
    selection.addEventListener("point", () => this.drawRing());
  }

  draw() {
    this.width = this.body.clientWidth;
    if (!this.width) return;
    const { selection, x } = this, { time } = selection.trials, colour = colours();
    const context = fitted(this.dots, this.width, HEIGHT);
    this.ringContext = fitted(this.ring, this.width, HEIGHT);
    const shown = this.drawn = selection.shown.filter((trial) => x[trial] === x[trial]);
    const ran = shown.filter((trial) => time[trial] === time[trial]);
    this.lane = ran.length < shown.length ? LANE : 0;
    this.place(shown, ran);
    this.drawAxes(context, colour, ran);
    this.drawBest(context, colour, ran);
    this.drawDots(context, colour, shown);
    this.drawRing();
    const best = ran.length ? `; the fastest is ${selection.trials.time[ran[0]].toFixed(2)} us` : "";
    this.ring.setAttribute("aria-label", `${this.title}: ${shown.length} trials${best}. Arrow keys go from trial to trial, Enter pins one.`);
  }

  place(shown, ran) {
    const { x, px, py } = this, { time } = this.selection.trials;
    const [low, high] = this.labels ? [-0.5, this.labels.length - 0.5] : span(shown, x);
    const right = this.width - RIGHT;
    this.across = (value) => LEFT + (right - LEFT) * (value - low) / (high - low || 1);
    this.xTicks = this.labels ? this.labels.map((label, n) => [this.across(n), label]) : steps(low, high, true).map((n) => [this.across(n), String(n)]);
    this.y = ran.length ? scale(time[ran[0]], time[ran.at(-1)], HEIGHT - BOTTOM, TOP + this.lane) : null;
    for (const trial of shown) {
      px[trial] = this.across(x[trial] + (this.labels ? jitter(trial) : 0));
      py[trial] = time[trial] === time[trial] ? this.y.place(time[trial]) : TOP + this.lane / 2;
    }
  }

  drawAxes(context, colour, ran) {
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colour.soft;
    context.strokeStyle = colour.line;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const [place, label] of ran.length ? this.y.ticks : []) {
      line(context, LEFT, place, this.width - RIGHT, place);
      context.fillText(label, LEFT - 6, place);
    }
    if (this.lane) context.fillText("failed", LEFT - 6, TOP + this.lane / 2);
    context.textAlign = "center";
    context.textBaseline = "top";
    let free = -Infinity;
    for (const [place, label] of this.xTicks) {
      const half = context.measureText(label).width / 2;
      if (place - half < free) continue;
      context.fillText(label, Math.min(place, this.width - half), HEIGHT - BOTTOM + 8);
      free = place + half + 6;
    }
  }

  // The best of each value, or the best so far.
  drawBest(context, colour, ran) {
    const { time } = this.selection.trials, points = [];
    if (this.isCourse) {
      let best = Infinity;
      for (const trial of [...ran].sort((a, b) => this.x[a] - this.x[b])) {
        if (time[trial] < best) { points.push([this.px[trial], this.y.place(Math.min(best, time[ran.at(-1)]))], [this.px[trial], this.py[trial]]); best = time[trial]; }
      }
      if (points.length) points.push([this.width - RIGHT, points.at(-1)[1]]);
    } else {
      const best = new Map();
      for (const trial of ran) if (!best.has(this.x[trial])) best.set(this.x[trial], this.py[trial]); // the fastest come first
      for (const value of [...best.keys()].sort((a, b) => a - b)) points.push([this.across(value), best.get(value)]);
    }
    context.strokeStyle = colour.accent;
    context.lineWidth = 2;
    context.beginPath();
    points.forEach(([x, y], n) => (n ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
  }

  drawDots(context, colour, shown) {
    const { marked, trials: { time } } = this.selection, radius = shown.length > 2000 ? 1.6 : 2.6;
    const put = (kept, ink, more = 0) => this.stamp(context, shown.filter(kept), radius + more, ink);
    if (marked === null) {
      put((trial) => time[trial] === time[trial], colour.dot);
      put((trial) => time[trial] !== time[trial], colour.fault);
    } else {
      put((trial) => !marked[trial], colour.faint);
      put((trial) => marked[trial], colour.mark, 0.6);
    }
  }

  // Dots of one colour, pixel by pixel on a layer of their own, so that a chart gives the browser few pictures to draw.
  stamp(context, trials, radius, ink) {
    if (!trials.length) return;
    const ratio = window.devicePixelRatio || 1, dot = sprite(radius, ink, ratio), half = dot.width >> 1;
    const { width, height } = context.canvas, layer = new ImageData(width, height);
    const from = new Uint32Array(dot.data.buffer), to = new Uint32Array(layer.data.buffer), taken = new Uint8Array(to.length);
    const inked = [...from.keys()].filter((pixel) => alpha(from[pixel]));
    const steps = inked.map((pixel) => (Math.floor(pixel / dot.width) - half) * width + pixel % dot.width - half);
    const inks = inked.map((pixel) => from[pixel]);
    for (const trial of trials) { // the axes' margins are wider than a dot, so none reaches over an edge
      const middle = Math.round(this.py[trial] * ratio) * width + Math.round(this.px[trial] * ratio);
      if (taken[middle]) continue;
      taken[middle] = 1;
      for (let n = 0; n < steps.length; n += 1) {
        const place = middle + steps[n];
        if (alpha(inks[n]) > alpha(to[place])) to[place] = inks[n];
      }
    }
    const over = element("canvas", { width, height });
    over.getContext("2d").putImageData(layer, 0, 0);
    context.drawImage(over, 0, 0, this.width, HEIGHT);
  }

  drawRing() {
    if (!this.ringContext) return;
    const { selection } = this, context = this.ringContext, colour = colours();
    context.clearRect(0, 0, this.width, HEIGHT);
    for (const trial of new Set([selection.pinned, selection.pointed])) {
      if (trial < 0 || this.x[trial] !== this.x[trial] || !selection.shown.includes(trial)) continue;
      context.beginPath();
      context.arc(this.px[trial], this.py[trial], 6, 0, 2 * Math.PI);
      context.strokeStyle = colour.ink;
      context.lineWidth = 2;
      context.stroke();
    }
    if (this.box) {
      const [x, y, width, height] = this.box;
      context.strokeStyle = colour.accent;
      context.lineWidth = 1;
      context.strokeRect(x, y, width, height);
    }
  }

  nearest(x, y) {
    let found = -1, least = REACH * REACH;
    for (const trial of this.drawn) {
      const distance = (this.px[trial] - x) ** 2 + (this.py[trial] - y) ** 2;
      if (distance < least) { least = distance; found = trial; }
    }
    return found;
  }

  screen(trial) {
    const box = this.ring.getBoundingClientRect();
    return { x: box.left + this.px[trial], y: box.top + this.py[trial] };
  }

  listen() {
    const { ring, selection } = this;
    let from = null;
    ring.addEventListener("pointerdown", (event) => { from = [event.offsetX, event.offsetY]; ring.setPointerCapture(event.pointerId); });
    ring.addEventListener("pointermove", (event) => {
      const [x, y] = [event.offsetX, event.offsetY];
      if (from && Math.hypot(x - from[0], y - from[1]) > LEAST_DRAG) {
        this.box = [Math.min(x, from[0]), Math.min(y, from[1]), Math.abs(x - from[0]), Math.abs(y - from[1])];
        selection.point(-1);
        this.drawRing();
      } else if (!from) this.point(this.nearest(x, y));
    });
    ring.addEventListener("pointerup", (event) => {
      const { box } = this, trial = this.nearest(event.offsetX, event.offsetY);
      this.box = from = null;
      if (box) selection.mark(this.inside(box));
      else selection.pin(trial, trial < 0 ? null : this.screen(trial));
    });
    ring.addEventListener("pointercancel", () => { this.box = from = null; this.drawRing(); });
    ring.addEventListener("pointerleave", () => { if (!from) selection.point(selection.pinned); });
    ring.addEventListener("keydown", (event) => this.onKey(event));
    ring.addEventListener("focus", () => { if (ring.matches(":focus-visible") && this.drawn.length) this.point(this.drawn[0], true); });
  }

  point(trial, spoken = false) {
    const { selection } = this, shown = trial < 0 ? selection.pinned : trial;
    selection.point(shown, trial < 0 ? null : this.screen(trial), spoken);
  }

  inside([x, y, width, height]) {
    const { px, py } = this;
    return this.drawn.filter((trial) => px[trial] >= x && px[trial] <= x + width && py[trial] >= y && py[trial] <= y + height);
  }

  onKey(event) {
    const { selection } = this, last = this.drawn.length - 1, here = this.drawn.indexOf(selection.pointed);
    const next = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: last }[event.key];
    if (next !== undefined && last >= 0) {
      event.preventDefault();
      this.point(this.drawn[Math.max(0, Math.min(last, next))], true);
    } else if (event.key === "Enter" && here >= 0) selection.pin(selection.pointed, this.screen(selection.pointed));
  }
}

// Moves the dots of one value apart; the same trial is at the same place each time.
const jitter = (trial) => (((trial * 2654435761) >>> 0) / 2 ** 32 - 0.5) * 0.5;

function span(trials, x) {
  let low = Infinity, high = -Infinity;
  for (const trial of trials) { low = Math.min(low, x[trial]); high = Math.max(high, x[trial]); }
  const margin = 0.03 * (high - low);
  return [low - margin, high + margin];
}

function line(context, x1, y1, x2, y2) {
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

// The pixels of a dot, on a screen that has `ratio` of them per CSS pixel.
function sprite(radius, ink, ratio) {
  const half = Math.ceil((radius + 1) * ratio), size = 2 * half + 1;
  const context = element("canvas", { width: size, height: size }).getContext("2d", { willReadFrequently: true });
  context.fillStyle = ink;
  context.beginPath();
  context.arc(half + 0.5, half + 0.5, radius * ratio, 0, 2 * Math.PI);
  context.fill();
  return context.getImageData(0, 0, size, size);
}

const alpha = (pixel) => pixel >>> 24;
