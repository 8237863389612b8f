// Sorts the tables of a page by a click on a heading.

const value = (row, column) => row.cells[column].textContent.trim();

function compare(one, other) {
  const [a, b] = [one, other].map((text) => Number.parseFloat(text.replaceAll(",", "")));
  const isNumber = [a, b].map((number) => !Number.isNaN(number));
  if (isNumber[0] && isNumber[1]) return a - b;
  if (isNumber[0] !== isNumber[1]) return isNumber[0] ? -1 : 1;
  return one.localeCompare(other, "en", { numeric: true });
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending", way = down ? -1 : 1;
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => way * compare(value(a, head.cellIndex), value(b, head.cellIndex)));
      table.tBodies[0].append(...rows);
    });
  }
}
