"use strict";
// Values beside the mouse, or beside what has the focus: every title of the page and of its figures, line by line.
// Without scripts browsers show the titles themselves.
const hoverBox = (() => {
  const box = document.getElementById("hover");
  const show = (content, x, y) => {
    box.replaceChildren(...content);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    box.style.top = `${y + height + 20 > innerHeight ? Math.max(4, y - height - 12) : y + 14}px`;
  };
  const hide = () => { box.hidden = true; };

  const told = new WeakMap();
  const keep = (node, words) => {
    told.set(node, words);
    if (!node.hasAttribute("aria-label")) node.setAttribute("aria-label", words.replaceAll("\n", ", "));
  };
  for (const node of document.querySelectorAll("[title]")) {
    keep(node, node.getAttribute("title"));
    node.removeAttribute("title");
  }
  for (const title of document.querySelectorAll("svg title")) {
    keep(title.parentNode, title.textContent);
    title.remove();
  }
  const teller = (node) => {
    while (node && !told.has(node)) node = node.parentElement;
    return node;
  };
  const linesOf = (node) => told.get(node).split("\n").map((line, place) => {
    const shown = document.createElement(place ? "div" : "strong");
    shown.textContent = line;
    return shown;
  });
  document.addEventListener("mousemove", (event) => {
    const node = teller(event.target);
    if (node) show(linesOf(node), event.clientX, event.clientY);
  });
  document.addEventListener("mouseout", (event) => { if (teller(event.target)) hide(); });
  document.addEventListener("focusin", (event) => {
    if (!told.has(event.target)) return;
    const place = event.target.getBoundingClientRect();
    show(linesOf(event.target), place.right, place.bottom);
  });
  document.addEventListener("focusout", (event) => { if (told.has(event.target)) hide(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    // Inside data-walk one stop of the tabulator is enough: arrows go from value to value.
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const group = step && event.target.closest?.("[data-walk]");
    if (!group) return;
    const all = [...group.querySelectorAll("[tabindex]")];
    const next = all[all.indexOf(event.target) + step];
    if (next) { event.preventDefault(); next.focus(); }
  });
  return { show, hide };
})();
