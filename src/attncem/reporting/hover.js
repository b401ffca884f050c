(() => {
  // Every title of the page and of its figures is told beside the mouse and the focus, line by line; without scripts
  // browsers show the titles themselves. Inside data-walk one stop of the tabulator is enough: arrows go on from it.
  const { element, showHover, hideHover } = page;
  const told = new WeakMap();
  const keep = (node, words) => {
    told.set(node, words.split("\n"));
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
  const show = (node, x, y) => {
    const [first, ...others] = told.get(node);
    showHover([element("strong", {}, first), ...others.map((line) => element("div", {}, line))], x, y);
  };
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => {
      const node = teller(event.target);
      if (node) show(node, event.clientX, event.clientY);
    });
  }
  document.addEventListener("pointerout", (event) => { if (teller(event.target)) hideHover(); });
  document.addEventListener("focusin", (event) => {
    if (!told.has(event.target)) return;
    const place = event.target.getBoundingClientRect();
    show(event.target, place.right, place.bottom);
  });
  document.addEventListener("focusout", (event) => { if (told.has(event.target)) hideHover(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideHover();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const group = step && event.target.closest?.("[data-walk]");
    if (!group) return;
    const stops = [...group.querySelectorAll("[tabindex]")];
    const next = stops[stops.indexOf(event.target) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
})();
