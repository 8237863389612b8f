// Sorts the tables of a page by a click on a heading. The address keeps the order, for bookmarks and reloads.

const value = (row, column) => row.cells[column].textContent.trim();

function compare(one, other) {
  const [a, b] = [one, other].map((text) => Number.parseFloat(text.replaceAll(",", "")));
  const isNumber = [a, b].map((number) => !Number.isNaN(number));
  if (isNumber[0] && isNumber[1]) return a - b;
  if (isNumber[0] !== isNumber[1]) return isNumber[0] ? -1 : 1;
  return one.localeCompare(other, "en", { numeric: true });
}

function sort(table, head, down) {
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows], way = down ? -1 : 1;
  rows.sort((a, b) => way * compare(value(a, head.cellIndex), value(b, head.cellIndex)));
  table.tBodies[0].append(...rows);
}

function keep(head, down) {
  const query = new URLSearchParams(location.search);
  query.set("order", `${down ? "-" : ""}${head.textContent.trim()}`);
  history.replaceState(null, "", `?${query}${location.hash}`);
}

function make(table) {
  const order = new URLSearchParams(location.search).get("order") ?? "";
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      sort(table, head, down);
      keep(head, down);
    });
    if (head.textContent.trim() === order.replace(/^-/, "")) sort(table, head, order.startsWith("-"));
  }
}

document.querySelectorAll("table[data-sortable]").forEach(make);
document.addEventListener("renewed", (event) => event.target.querySelectorAll("table[data-sortable]").forEach(make));
