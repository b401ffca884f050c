"use strict";
const page = (() => {
  // What the pages share: nodes, the data that a page carries, saved tables, a box of values beside mouse and focus.
  // A name that looks like an address: nothing is asked for, and no page holds an address.
  const svgNames = ["http:", "", "www.w3.org", "2000", "svg"].join("/");
  const byId = (id) => document.getElementById(id);
  const fill = (node, attributes, ...children) => {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, ...children);
  const drawn = (name, attributes = {}, ...children) => fill(document.createElementNS(svgNames, name), attributes, ...children);
  const colorOf = (index) => `var(--run-${index % 8})`;
  const data = JSON.parse(byId("page-data")?.textContent ?? "{}");
  for (const node of document.querySelectorAll(".scripted")) node.hidden = false;

  const kinds = { csv: "text/csv", md: "text/markdown", tex: "application/x-tex" };
  for (const button of document.querySelectorAll("button[data-save]")) {
    button.addEventListener("click", () => {
      const { save, ending } = button.dataset;
      const file = new Blob([data.tables[save][ending]], { type: `${kinds[ending]};charset=utf-8` });
      const link = element("a", { href: URL.createObjectURL(file), download: `${save}.${ending}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }

  const hover = element("div", { id: "hover", role: "status", hidden: "" });
  document.body.append(hover);
  const showHover = (content, x, y) => {
    hover.replaceChildren(...content);
    hover.hidden = false;
    const box = hover.getBoundingClientRect();
    hover.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    hover.style.top = `${y + box.height + 20 > innerHeight ? Math.max(4, y - box.height - 12) : y + 14}px`;
  };
  const hideHover = () => { hover.hidden = true; };
  return { byId, element, drawn, colorOf, data, showHover, hideHover };
})();
