// The table of all trials: the server's first page of it, then sorted, narrowed and turned here.
import { element, us } from "./format.js";

const PAGE = 100;

export class Table {
  constructor(selection, path) {
    Object.assign(this, { selection, path, first: 0 });
    const place = new URLSearchParams(location.search).get("sort") ?? "time";
    this.sort = place.replace(/^-/, "");
    this.down = place.startsWith("-");
    this.table = document.getElementById("table");
    this.body = this.table.tBodies[0];
    this.listen();
    selection.addEventListener("change", () => { this.first = 0; this.show(); });
    selection.addEventListener("point", () => this.light());
  }

  listen() {
    const { selection, table } = this;
    table.tHead.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-sort]");
      if (!link) return;
      event.preventDefault();
      this.down = this.sort === link.dataset.sort && !this.down;
      this.sort = link.dataset.sort;
      this.first = 0;
      this.show();
    });
    const rowOf = (event) => Number(event.target.closest("tr[data-trial]")?.dataset.trial ?? -1);
    this.body.addEventListener("pointerover", (event) => selection.point(rowOf(event)));
    this.body.addEventListener("pointerleave", () => selection.point(selection.pinned));
    document.getElementById("pages").addEventListener("click", (event) => {
      const link = event.target.closest("a[rel]");
      if (!link) return;
      event.preventDefault();
      this.first += link.rel === "next" ? PAGE : -PAGE;
      this.show();
      table.scrollIntoView();
    });
    document.getElementById("download").addEventListener("click", (event) => {
      if (!selection.marked) return; // the link itself leads to all trials of the filters
      event.preventDefault();
      save(this.csv());
    });
  }

  keys() {
    const { trials } = this.selection, last = (value) => (value === null || value !== value ? Infinity : value);
    if (this.sort === "time") return (trial) => last(trials.time[trial]);
    if (this.sort === "evaluation") return (trial) => last(trials.ordinal[trial]);
    if (this.sort === "status") return (trial) => trials.statuses[trials.status[trial]];
    const { codes } = trials.parameters.find((each) => each.name === this.sort);
    return (trial) => codes[trial];
  }

  order() {
    const key = this.keys(), way = this.down ? -1 : 1;
    return [...this.selection.chosen()].sort((a, b) => {
      const [one, other] = [key(a), key(b)];
      return one < other ? -way : one > other ? way : a - b;
    });
  }

  show() {
    const { selection } = this, found = this.order(), { count } = selection.trials;
    this.body.replaceChildren(...found.slice(this.first, this.first + PAGE).map((trial) => this.row(trial)));
    document.getElementById("shown").textContent = `${found.length} of ${count} trials${selection.marked ? ", marked in a chart" : ""}`;
    for (const head of this.table.tHead.rows[0].cells) {
      const sorted = head.firstChild.dataset.sort === this.sort;
      if (sorted) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    const query = this.query(), text = query.toString();
    document.getElementById("download").href = `${this.path}/trials.csv?${text}`;
    history.replaceState(null, "", (text ? `?${text}` : location.pathname) + location.hash);
    this.turn(found.length);
    this.light();
  }

  query() {
    const query = new URLSearchParams(location.search), { selection } = this;
    const put = (name, value) => (value ? query.set(name, value) : query.delete(name));
    put("status", selection.status);
    put("within", selection.within === null ? "" : String(selection.within));
    put("sort", this.down ? `-${this.sort}` : this.sort === "time" ? "" : this.sort);
    put("first", this.first ? String(this.first) : "");
    return query;
  }

  turn(total) {
    const pages = document.getElementById("pages"), links = [];
    if (this.first) links.push(element("a", { rel: "prev", href: "#trials" }, `Previous ${PAGE}`), " ");
    if (this.first + PAGE < total) links.push(element("a", { rel: "next", href: "#trials" }, `Next ${PAGE}`));
    pages.replaceChildren(...links);
  }

  row(trial) {
    const { trials } = this.selection, time = trials.time[trial], ran = time === time;
    const cells = [ran ? [element("a", { href: `${this.path}/compare?b=${trial}` }, us(time)), " ", element("span", { class: "soft" }, `${(time / trials.best).toFixed(3)}x`)] : ["-"]];
    const status = element("td", {}, trials.outcome(trial)), reason = trials.reasons[trials.reason[trial]];
    if (reason) status.title = reason;
    const number = (children) => element("td", { class: "number" }, ...children);
    return element("tr", { "data-trial": trial }, number(cells[0]), status, number([String(trials.ordinal[trial] ?? "-")]),
      ...trials.parameters.map((parameter) => number([trials.value(trial, parameter)])));
  }

  light() {
    const { pointed, pinned } = this.selection;
    for (const row of this.body.rows) {
      const trial = Number(row.dataset.trial);
      row.classList.toggle("pointed", trial === pointed || trial === pinned);
    }
  }

  csv() {
    const { trials } = this.selection, quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [["time_us", "status", "verified", "evaluation", "reason", ...trials.parameters.map((each) => each.name)]];
    for (const trial of this.order()) {
      const time = trials.time[trial];
      lines.push([time === time ? String(time) : "", trials.statuses[trials.status[trial]], trials.verified[trial] ? "True" : "False",
        String(trials.ordinal[trial] ?? ""), trials.reasons[trials.reason[trial]], ...trials.parameters.map((each) => trials.value(trial, each))]);
    }
    return lines.map((cells) => cells.map(quote).join(",")).join("\n") + "\n";
  }
}

function save(text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "marked-trials.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}
