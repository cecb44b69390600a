"use strict";

// What a cell is sorted by: a number where it has one, else text; null is missing and comes last.
function key(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value ?? cell.textContent.trim();
  if (value === "") return null;
  return Number.isNaN(Number(value)) ? value : Number(value);
}

function sort(table, column, sign) {
  const order = (a, b) => {
    const [x, y] = [key(a, column), key(b, column)];
    if (x === null || y === null) return (x === null) - (y === null);
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    return sign * String(x).localeCompare(String(y));
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort(order));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sort(table, column, up ? 1 : -1);
    });
  });
}

for (const filters of document.querySelectorAll(".filters")) {
  const rows = [...document.querySelector(`#${filters.dataset.of} tbody`).rows];
  const choices = [...filters.querySelectorAll("select")];
  const fits = (row) =>
    choices.every((one) => !one.value || row.cells[one.dataset.column].dataset.value === one.value);
  const shown = filters.querySelector("output");
  filters.addEventListener("change", () => {
    rows.forEach((row) => (row.hidden = !fits(row)));
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
  filters.hidden = false;
}
