// The course of one program of each launch: a lane per pipe, which can be zoomed. Without scripts there is a picture.
import { colours, element, fitted, steps, us } from "./format.js";
import { openInPerfetto } from "./perfetto.js";

const LEFT = 132, RIGHT = 10, LANE = 28, BAR = 20, BOTTOM = 24, LEAST_DRAG = 5, FAINT = 0.35;
const COLOURS = { S: "#8a8f98", V: "#3b7dd8", MTE2: "#2a9d6f", MTE3: "#d98a1f", MTE1: "#8e6bd1", M: "#3b7dd8", FIX: "#d98a1f" };

export async function showCourse(place) {
  const says = document.getElementById("timeline-says");
  const answer = await fetch(place.dataset.trace);
  if (!answer.ok) { says.textContent = "The timeline's figures could not be read; this is a picture of it."; return; }
  const text = await answer.text();
  place.replaceChildren(...launches(JSON.parse(text).traceEvents).map((launch) => new Course(launch).home));
  place.dataset.ready = "";
  const hint = document.getElementById("timeline-hint"), button = document.getElementById("perfetto");
  hint.textContent = "Drag over a stretch to zoom into it, or turn the wheel with Ctrl held or once the timeline is clicked; keys: + and - zoom, arrows move, 0 shows all.";
  hint.hidden = button.hidden = false;
  button.addEventListener("click", () => openInPerfetto(text, document.title, (state) => { says.textContent = state; }));
}

// One per process of the trace: its name, and its lanes from above with their slices by start.
function launches(events) {
  const found = new Map();
  const of = (event) => {
    if (!found.has(event.pid)) found.set(event.pid, { name: "", lanes: new Map(), end: 0 });
    return found.get(event.pid);
  };
  for (const event of events) {
    const launch = of(event);
    if (event.name === "process_name") launch.name = event.args.name;
    else if (event.name === "thread_name") launch.lanes.set(event.tid, { label: event.args.name, slices: [] });
    else if (event.ph === "X") {
      launch.lanes.get(event.tid).slices.push(event);
      launch.end = Math.max(launch.end, event.ts + event.dur);
    }
  }
  for (const { lanes } of found.values()) for (const { slices } of lanes.values()) slices.sort((a, b) => a.ts - b.ts);
  return [...found.values()].filter((launch) => launch.end > 0);
}

class Course {
  constructor({ name, lanes, end }) {
    Object.assign(this, { name, lanes: [...lanes.values()], end, from: 0, to: end });
    this.height = this.lanes.length * LANE + BOTTOM;
    this.canvas = element("canvas", { tabindex: 0, role: "img" });
    this.tip = element("p", { class: "course-tip", "aria-live": "polite" });
    this.body = element("div", { class: "course" }, this.canvas);
    this.body.style.height = `${this.height}px`;
    const press = (label, text, act) => {
      const button = element("button", { type: "button", class: "plain", "aria-label": label }, text);
      button.addEventListener("click", act);
      return button;
    };
    const tools = element("span", { class: "links" }, press("Zoom in", "+", () => this.zoom(0.5)), press("Zoom out", "-", () => this.zoom(2)), press("Show all", "all", () => this.show(0, this.end)));
    this.home = element("figure", { class: "course-home" }, element("figcaption", {}, name, " ", tools), this.body, this.tip);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  get scale() { return (this.width - LEFT - RIGHT) / (this.to - this.from); }
  at(x) { return this.from + (x - LEFT) / this.scale; }
  x(time) { return LEFT + (time - this.from) * this.scale; }

  show(from, to) {
    const length = Math.min(this.end, Math.max(to - from, this.end / 20_000));
    this.from = Math.max(0, Math.min(from, this.end - length));
    this.to = this.from + length;
    this.draw();
  }

  zoom(factor, about = (this.from + this.to) / 2) {
    this.show(about - (about - this.from) * factor, about + (this.to - about) * factor);
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  draw() {
    this.width = this.body.clientWidth;
    if (!this.width) return;
    const context = fitted(this.canvas, this.width, this.height), colour = colours();
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.lanes.forEach((lane, n) => this.drawLane(context, colour, lane, n * LANE));
    this.drawTicks(context, colour);
    if (this.box) {
      context.globalAlpha = 0.2;
      context.fillStyle = colour.accent;
      context.fillRect(this.box[0], 0, this.box[1] - this.box[0], this.lanes.length * LANE);
      context.globalAlpha = 1;
    }
    this.canvas.dataset.from = this.from;
    this.canvas.dataset.to = this.to;
    this.canvas.setAttribute("aria-label", `${this.name}: ${us(this.from)} to ${us(this.to)} of ${us(this.end)} microseconds, a lane per pipe. Plus and minus zoom, arrow keys move, 0 shows all.`);
  }

  drawLane(context, colour, { label, slices }, y) {
    context.fillStyle = colour.soft;
    context.fillText(label.replace(/ \(\w+\)$/, ""), 0, y + BAR / 2, LEFT - 8);
    context.fillStyle = colour.line;
    context.fillRect(LEFT, y + BAR, this.width - LEFT - RIGHT, 1);
    context.save();
    context.beginPath();
    context.rect(LEFT, y, this.width - LEFT - RIGHT, BAR);
    context.clip();
    for (const critical of [false, true]) {
      context.globalAlpha = critical ? 1 : FAINT;
      let begin = NaN, end = NaN; // bars that are less than half a pixel apart are one
      const put = () => { if (end >= begin) context.fillRect(begin, y, Math.max(end - begin, 0.4), BAR); };
      for (const slice of slices) {
        if (slice.args.critical !== critical || slice.ts + slice.dur < this.from || slice.ts > this.to) continue;
        const left = this.x(slice.ts), right = this.x(slice.ts + slice.dur);
        context.fillStyle = COLOURS[slice.cat] ?? colour.dot;
        if (left - end < 0.5) end = Math.max(end, right);
        else { put(); begin = left; end = right; }
      }
      put();
    }
    context.restore();
  }

  drawTicks(context, colour) {
    const y = this.lanes.length * LANE + 10;
    context.fillStyle = colour.soft;
    context.textAlign = "center";
    const found = steps(this.from, this.to), digits = Math.max(0, Math.ceil(-Math.log10((found[1] ?? 1) - (found[0] ?? 0) || 1)));
    found.forEach((tick, n) => context.fillText(tick.toFixed(digits) + (n === found.length - 1 ? " us" : ""), Math.min(this.x(tick), this.width - 24), y));
    context.textAlign = "left";
  }

  slice(x, y) {
    const lane = this.lanes[Math.floor(y / LANE)], time = this.at(x), reach = 1.5 / this.scale;
    let found = null, least = reach;
    for (const slice of lane?.slices ?? []) {
      if (slice.ts > time + reach) break;
      const away = Math.max(slice.ts - time, time - slice.ts - slice.dur, 0);
      if (away <= least) { found = slice; least = away; }
    }
    return x < LEFT ? null : found;
  }

  tell(slice) {
    if (!slice) { this.tip.textContent = ""; return; }
    const { line = "", source = "", critical } = slice.args;
    this.tip.replaceChildren(`${slice.name}, ${slice.dur.toFixed(3)} us from ${slice.ts.toFixed(3)}${critical ? ", on the critical path" : ""} ${line} `, element("code", {}, source));
  }

  listen() {
    const { canvas } = this;
    let from = null;
    const end = () => { from = this.box = null; };
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / this.width);
      else this.zoom(1.25 ** Math.sign(event.deltaY), this.at(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { from = event.offsetX; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (from === null) { this.tell(this.slice(event.offsetX, event.offsetY)); return; }
      if (Math.abs(event.offsetX - from) < LEAST_DRAG) return;
      this.box = [Math.max(LEFT, Math.min(from, event.offsetX)), Math.max(LEFT, from, event.offsetX)];
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const { box } = this;
      end();
      if (box) this.show(this.at(box[0]), this.at(box[1]));
      else this.tell(this.slice(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointercancel", () => { end(); this.draw(); });
    canvas.addEventListener("dblclick", () => this.show(0, this.end));
    canvas.addEventListener("keydown", (event) => {
      const act = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowLeft: () => this.move(-0.2),
        ArrowRight: () => this.move(0.2), Home: () => this.show(0, this.to - this.from), End: () => this.show(this.end, this.end + this.to - this.from), 0: () => this.show(0, this.end) }[event.key];
      if (!act || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act();
    });
  }
}
