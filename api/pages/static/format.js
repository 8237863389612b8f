// Times, ticks, colours and elements, as all parts of the page write them.

export const us = (time) => (time < 1000 ? time.toFixed(2) : Math.round(time).toLocaleString("en"));
const short = (time) => (time < 100 ? String(Number(time.toPrecision(3))) : time.toFixed(0));

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: named("ink"), soft: named("soft"), line: named("line"), accent: named("accent"), fault: named("fault"),
    ground: named("ground"), dot: named("dot"), faint: named("faint"), mark: named("mark") };
}

// A scale from times to pixels: logarithmic for times that differ by more than 4x, where a linear one would show less.
export function scale(low, high, from, to) {
  const log = high > 4 * low;
  if (high === low) { low *= 0.95; high *= 1.05; }
  const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const margin = 0.04 * (b - a);
  const place = (time) => from + (to - from) * ((log ? Math.log(time) : time) - a + margin) / (b - a + 2 * margin);
  return { place, ticks: (log ? decades(low, high) : steps(low, high)).map((value) => [place(value), short(value)]) };
}

export function steps(low, high, whole = false) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = Math.max([1, 2, 5, 10].find((each) => each * power >= rough) * power, whole ? 1 : 0);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high * (1 + 1e-9); n += 1) found.push(Number((n * step).toPrecision(12)));
  return found;
}

function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const digit of high / low > 200 ? [1] : [1, 2, 5]) {
      const value = digit * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}

// A canvas in a box, at the resolution of the screen. Returns its context, in CSS pixels.
export function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}
