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
    const column = Number(header.dataset.column ?? header.cellIndex); // below a shared header its place in the row is another
    // A row with a spanning cell (a run without an audit) has no value to sort by: it stays at the end.
    const whole = [...body.rows].filter((row) => row.cells.length > column && !row.querySelector("[colspan]"));
    const rest = [...body.rows].filter((row) => !whole.includes(row));
    const rows = whole.sort((a, b) => (up ? 1 : -1) * compare(valueOf(a, column), valueOf(b, column)));
    for (const row of rows) row.classList.remove("first");
    body.append(...rows, ...rest);
  };
  for (const header of document.querySelectorAll('table.sortable thead th:not([scope="colgroup"])')) {
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

  // figures tell their values: points to who points at them, curves at the x under the mouse

  const { element, drawn, colorOf, showHover, hideHover } = page;
  const watch = (node, told, hide) => {
    node.addEventListener("pointermove", (event) => told(event));
    node.addEventListener("pointerdown", (event) => told(event));
    node.addEventListener("pointerleave", hide);
    node.addEventListener("blur", hide);
  };
  for (const spot of document.querySelectorAll(".spot")) {
    const said = spot.getAttribute("aria-label");
    spot.querySelector("title").remove(); // else the browser would tell it a second time
    watch(spot, (event) => showHover([said], event.clientX, event.clientY), hideHover);
    spot.addEventListener("focus", () => {
      const box = spot.getBoundingClientRect();
      showHover([said], box.right, box.bottom);
    });
  }
  const nearest = (numbers, value) => {
    let best = 0;
    numbers.forEach((it, place) => { if (Math.abs(it - value) < Math.abs(numbers[best] - value)) best = place; });
    return best;
  };
  const shown = (value) => String(Number(value.toPrecision(4)));
  const tellCurves = (svg) => {
    const { title, from, to, top, bottom, lines } = JSON.parse(svg.dataset.lines);
    const places = [...new Set(lines.flatMap((line) => line[2]))].sort((a, b) => a - b);
    const guide = drawn("line", { class: "guide", y1: top, y2: bottom, visibility: "hidden" });
    svg.append(guide);
    let at = places.length - 1;
    const acrossOf = (value) => from[0] + ((value - from[1]) / (to[1] - from[1])) * (to[0] - from[0]);
    const tell = (x, y) => {
      const across = acrossOf(places[at]);
      guide.setAttribute("x1", across);
      guide.setAttribute("x2", across);
      guide.setAttribute("visibility", "visible");
      const rows = lines.map(([label, color, xs, ys]) => element("div", {},
        element("span", {}, element("span", { class: "chip", style: `--c: ${colorOf(color)}` }), label),
        element("b", {}, shown(ys[nearest(xs, places[at])]))));
      showHover([element("strong", {}, `${title} ${shown(places[at])}`), ...rows], x, y);
    };
    const hide = () => {
      guide.setAttribute("visibility", "hidden");
      hideHover();
    };
    const tellHere = () => {
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      tell(box.left + acrossOf(places[at]) * scale, box.top + top * scale);
    };
    watch(svg, (event) => {
      const box = svg.getBoundingClientRect();
      const across = (event.clientX - box.left) * (svg.viewBox.baseVal.width / box.width);
      at = nearest(places, from[1] + ((across - from[0]) / (to[0] - from[0])) * (to[1] - from[1]));
      tell(event.clientX, event.clientY);
    }, hide);
    svg.addEventListener("focus", tellHere);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      at = Math.max(0, Math.min(places.length - 1, at + step));
      tellHere();
    });
  };
  for (const svg of document.querySelectorAll("svg[data-lines]")) tellCurves(svg);

  // on a phone, long sections are one line each, which opens

  const LONG = ["protected", "wall", "gallery", "cells", "attacks", "tests", "costs", "certificates", "asking", "curves", "sensitivity", "explain", "classes", "reading", "settings", "commands"];
  const phone = matchMedia("(max-width: 40rem)");
  const foldOf = (id) => document.getElementById(id)?.querySelector(":scope > details.fold");
  const fold = (section) => {
    const title = section.querySelector(":scope > h2");
    if (!title) return;
    const rest = [...section.childNodes].filter((it) => it !== title);
    section.append(element("details", { class: "fold" }, element("summary", {}, title), ...rest));
  };
  const foldLong = () => {
    for (const id of LONG) {
      const section = document.getElementById(id);
      if (section && !foldOf(id)) fold(section);
    }
  };
  const openAll = (open) => { for (const it of document.querySelectorAll("details.fold")) it.open = open; };
  const openAsked = () => { const it = foldOf(location.hash.slice(1)); if (it) it.open = true; };
  if (phone.matches) foldLong();
  phone.addEventListener("change", () => { if (!phone.matches) openAll(true); });
  addEventListener("beforeprint", () => openAll(true));
  addEventListener("hashchange", openAsked);
  for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(openAsked)); // also the same one again
  openAsked();
})();
