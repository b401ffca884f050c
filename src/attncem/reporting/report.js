"use strict";
(() => {
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  const sortBy = (header) => {
    const table = header.closest("table");
    const up = header.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0];
    const column = header.cellIndex;
    // A row with a spanning cell (a run without an audit) has no value to sort by: it stays at the end.
    const whole = [...body.rows].filter((row) => row.cells.length > column && !row.querySelector("[colspan]"));
    const rest = [...body.rows].filter((row) => !whole.includes(row));
    const rows = whole.sort((a, b) => (up ? 1 : -1) * compare(valueOf(a, column), valueOf(b, column)));
    for (const row of rows) row.classList.remove("first");
    body.append(...rows, ...rest);
  };
  for (const header of document.querySelectorAll("table.sortable thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(header));
    header.append(button);
  }
  const choose = document.getElementById("choose-attack");
  if (choose) {
    choose.closest(".choose").hidden = false;
    choose.addEventListener("change", () => {
      for (const strip of document.querySelectorAll(".strip[data-attack]")) {
        strip.hidden = choose.value === "" ? !("strongest" in strip.dataset) : strip.dataset.attack !== choose.value;
      }
    });
  }
})();
