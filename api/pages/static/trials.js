// The trials of a problem as columns, and the state that all charts and the table share: which trials are shown, marked,
// pointed at and pinned.

export async function load(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`the trials could not be read: ${answer.status}`);
  return new Trials(await answer.json());
}

class Trials {
  constructor(document) {
    Object.assign(this, document);
    this.count = this.status.length;
    this.time = Float64Array.from(document.time_us, (time) => time ?? NaN);
    this.best = NaN;
    for (const time of this.time) if (!(this.best <= time) && time === time) this.best = time;
    this.varied = this.parameters.filter((parameter) => parameter.values.length > 1);
  }

  value(trial, parameter) {
    const code = parameter.codes[trial];
    return code < 0 ? "" : parameter.values[code];
  }

  config(trial) {
    return this.parameters.filter((each) => each.codes[trial] >= 0).map((each) => [each.name, this.value(trial, each)]);
  }

  outcome(trial) {
    return this.statuses[this.status[trial]] + (this.verified[trial] ? ", verified" : "");
  }
}

export class Selection extends EventTarget {
  constructor(trials, { status, within }) {
    super();
    this.trials = trials;
    this.pointed = this.pinned = -1;
    this.marked = null; // one byte per trial, or null if all count
    this.status = status;
    this.within = within;
    this.filter();
  }

  // Trials that the filters keep, the fastest first; those without a time come last.
  filter() {
    const { trials } = this, limit = this.within === null ? NaN : trials.best * (1 + this.within / 100);
    const wanted = trials.statuses.indexOf(this.status), kept = [];
    for (let n = 0; n < trials.count; n += 1) {
      if ((this.status && trials.status[n] !== wanted) || (this.within !== null && !(trials.time[n] <= limit))) continue;
      kept.push(n);
    }
    const rank = (n) => (trials.time[n] === trials.time[n] ? trials.time[n] : Infinity);
    this.shown = Uint32Array.from(kept).sort((a, b) => rank(a) - rank(b) || a - b);
  }

  isMarked(trial) { return this.marked === null || this.marked[trial] === 1; }

  chosen() { return this.marked === null ? this.shown : this.shown.filter((trial) => this.marked[trial]); }

  narrow(status, within) {
    this.status = status;
    this.within = within;
    this.marked = null;
    this.filter();
    this.tell("change");
  }

  mark(trials) {
    this.marked = null;
    if (trials) {
      this.marked = new Uint8Array(this.trials.count);
      for (const trial of trials) this.marked[trial] = 1;
    }
    this.tell("change");
  }

  // `place` is where the trial is on the screen, `spoken` whether a screen reader should say what it is.
  point(trial, place = null, spoken = false) {
    if (trial === this.pointed) return;
    this.pointed = trial;
    this.tell("point", { place, spoken });
  }

  pin(trial, place = null) {
    this.pinned = this.pointed = trial;
    this.tell("point", { place, spoken: trial >= 0 });
  }

  tell(name, detail) { this.dispatchEvent(new CustomEvent(name, { detail })); }
}
