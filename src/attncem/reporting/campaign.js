(() => {
  // The page of a campaign: filters, saved tables, the plot, the cells' details, portraits. All text is set as text.
  const { data, byId, element, drawn, colorOf, showHover, hideHover } = page;
  const words = data.words;
  const said = (pattern, values) => pattern.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

  // tables: filter

  const showRows = (table, typed) => {
    const wanted = typed.toLowerCase().split(/\s+/).filter(Boolean);
    const reference = byId("choose-reference")?.value;
    let count = 0;
    for (const row of table.tBodies[0].rows) {
      const content = row.textContent.toLowerCase();
      const other = row.dataset.mark !== undefined && reference !== undefined && row.dataset.mark !== reference;
      row.hidden = other || !wanted.every((word) => content.includes(word));
      count += row.hidden ? 0 : 1;
    }
    return count;
  };
  const filterTable = (input) => {
    const name = input.dataset.filter;
    const table = byId(`table-${name}`);
    const count = showRows(table, input.value);
    const all = table.tBodies[0].rows.length;
    const shown = document.querySelector(`output[data-shown="${name}"]`);
    shown.textContent = input.value.trim() ? said(words.rows_shown, { count, all }) : "";
  };
  for (const input of document.querySelectorAll("input[data-filter]")) {
    input.addEventListener("input", () => filterTable(input));
  }

  // the reference arm

  byId("choose-reference")?.addEventListener("change", (event) => {
    for (const mark of document.querySelectorAll("[data-reference]")) {
      mark.hidden = mark.dataset.reference !== event.target.value;
    }
    const tests = byId("table-tests");
    if (tests) showRows(tests, document.querySelector('input[data-filter="tests"]').value);
  });

  // the details of a cell

  const details = byId("details");
  const pair = (title, value) => element("div", {}, element("dt", {}, title), element("dd", {}, value));
  const headRow = (titles) => element("thead", {}, element("tr", {}, ...titles.map((title, place) => element("th", place ? {} : { class: "text" }, title))));
  const attackTable = (audit) => {
    const body = element("tbody");
    for (const [name, isFloor, reliable, ...values] of audit.rows) {
      const row = element("tr", name === audit.strongest ? { class: "strongest" } : {});
      const head = element("th", { scope: "row" }, name);
      if (name === audit.strongest) head.append(element("small", {}, words.strongest));
      if (!reliable) head.append(element("small", { class: "no" }, words.not_reliable));
      row.append(head, ...values.map((value) => element("td", {}, value)));
      body.append(row);
    }
    for (const [name, reason] of audit.others) {
      body.append(element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "text said", colspan: "3" }, reason)));
    }
    return element("div", { class: "scroll" }, element("table", {}, headRow([words.attack, ...data.measures.map((it) => it.title)]), body));
  };
  const openCell = (id) => {
    const cell = data.cells[id];
    if (!cell) return;
    byId("details-title").textContent = id;
    const facts = element("dl", {}, pair(words.point, cell.label), pair(words.seed, String(cell.seed)), pair(words.state, cell.state), pair(words.training, cell.training));
    for (const [key, value] of Object.entries(cell.point)) facts.append(pair(key, value));
    if (cell.reason) facts.append(pair(words.reason, cell.reason));
    const parts = [facts];
    for (const audit of cell.audits) {
      parts.push(element("h3", {}, data.kinds[audit.kind]), element("p", {}, `${words.accuracy}: ${audit.accuracy}`), attackTable(audit));
      if (audit.warnings.length) parts.push(element("ul", { class: "small" }, ...audit.warnings.map((it) => element("li", {}, it))));
    }
    if (!cell.audits.length) parts.push(element("p", {}, words.no_audit));
    parts.push(element("p", { class: "small" }, `${words.report_command} `, element("code", {}, cell.command)));
    byId("details-body").replaceChildren(...parts);
    hideHover();
    if (!details.open) details.showModal();
    details.scrollTop = 0;
  };
  const openFromAddress = () => {
    // Names of cells need no escapes, so an address that was typed is taken as it is.
    const asked = location.hash;
    if (asked.startsWith("#cell-")) openCell(asked.slice(6));
    else if (details.open) details.close();
  };
  addEventListener("hashchange", openFromAddress);
  byId("details-close").addEventListener("click", () => details.close());
  details.addEventListener("click", (event) => { if (event.target === details) details.close(); });
  details.addEventListener("close", () => {
    if (location.hash.startsWith("#cell-")) history.replaceState(null, "", location.pathname + location.search);
  });
  const goTo = (id) => {
    history.pushState(null, "", `#cell-${id}`);
    openCell(id);
  };

  // the plot of accuracy and error

  const ticks = (low, high, wanted) => {
    const rough = (high - low) / wanted;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((it) => it * size).find((it) => it >= rough);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(Number(value.toPrecision(10)));
    return found;
  };
  const range = (values) => {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const room = 0.07 * (high - low) || Math.max(Math.abs(high) * 0.1, 1e-6);
    return [low - room, high + room];
  };
  const shape = (index, x, y, attributes) => {
    const size = 6;
    const points = {
      1: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
      2: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]],
      3: [[0, -1.3], [1.25, 1], [-1.25, 1]],
      4: [[0, 1.3], [1.25, -1], [-1.25, -1]],
    }[index % 5];
    if (!points) return drawn("circle", { cx: x, cy: y, r: size, ...attributes });
    return drawn("polygon", { points: points.map(([a, b]) => `${x + a * size},${y + b * size}`).join(" "), ...attributes });
  };
  const hoverLines = (group, point, error, measure) => {
    const line = (title, value) => element("div", {}, element("span", {}, title), element("b", {}, value));
    const ends = (spread) => [
      ...(spread.said_seeds ? [element("small", {}, `${words.interval_seeds} ${spread.said_seeds}`)] : []),
      element("small", {}, `${words.interval_images} ${spread.said_images}`),
    ];
    return [
      element("strong", {}, group.label), line(words.accuracy, `${point.accuracy.said} %`), ...ends(point.accuracy),
      line(measure.title, error.said), ...ends(error), line(words.seeds, String(error.count)),
      line(words.standing, data.standings[error.standing]), element("small", {}, `${words.share} ${error.share}`),
      ...(point.lost ? [element("small", { class: "no" }, words.lost)] : []),
      element("small", {}, words.click),
    ];
  };
  const drawPareto = () => {
    const figure = byId("pareto");
    const measure = data.measures.find((it) => it.name === byId("choose-measure").value);
    const kind = Number(byId("choose-kind")?.value ?? 0);
    const points = data.points[kind].filter((it) => it[measure.name]);
    if (!points.length) { figure.replaceChildren(); return; }
    const [width, height, left, bottom, top, right] = [900, 460, 74, 52, 14, 16];
    // Axes hold every seed and the interval over images; the interval over few seeds is cut where it leaves them.
    const spans = points.map((it) => [it.accuracy.images, it[measure.name].images]);
    const seeds = points.flatMap((it) => data.groups[it.group].cells.map((id) => [id, data.cells[id].at[kind], data.groups[it.group].color])).filter(([, at]) => at && at[measure.name] !== undefined);
    const xs = range([...spans.flatMap(([x]) => x), ...seeds.map(([, at]) => at.accuracy)]);
    const ys = range([...spans.flatMap(([, y]) => y), ...seeds.map(([, at]) => at[measure.name])]);
    // More private is up, whichever way the measure points.
    const up = measure.private === "higher";
    const shareOf = (value, [low, high]) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    const toX = (value) => left + shareOf(value, xs) * (width - left - right);
    const toY = (value) => {
      const share = shareOf(value, ys);
      return top + (up ? 1 - share : share) * (height - top - bottom);
    };
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${data.accuracy_title}, ${measure.title}` });
    for (const value of ticks(...xs, 8)) {
      svg.append(drawn("line", { class: "axis", x1: toX(value), x2: toX(value), y1: top, y2: height - bottom }));
      svg.append(drawn("text", { class: "tick", x: toX(value), y: height - bottom + 18, "text-anchor": "middle" }, `${Number((100 * value).toPrecision(4))}`));
    }
    for (const value of ticks(...ys, 6)) {
      svg.append(drawn("line", { class: "axis", x1: left, x2: width - right, y1: toY(value), y2: toY(value) }));
      svg.append(drawn("text", { class: "tick", x: left - 8, y: toY(value) + 4, "text-anchor": "end" }, String(value)));
    }
    svg.append(drawn("path", { class: "frame", d: `M${left},${top}V${height - bottom}H${width - right}` }));
    svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle" }, data.accuracy_title));
    const middle = (top + height - bottom) / 2;
    svg.append(drawn("text", { x: 16, y: middle, "text-anchor": "middle", transform: `rotate(-90 16 ${middle})` }, measure.title));
    for (const [id, at, color] of seeds) {
      const dot = drawn("circle", { class: "seed", cx: toX(at.accuracy), cy: toY(at[measure.name]), r: 2.6, style: `fill: ${colorOf(color)}` }, drawn("title", {}, id));
      dot.addEventListener("click", () => goTo(id));
      svg.append(dot);
    }
    for (const point of points) {
      const group = data.groups[point.group];
      const error = point[measure.name];
      const [x, y] = [toX(point.accuracy.mean), toY(error.mean)];
      const color = colorOf(group.color);
      const bar = (spread, across, stroke, opacity) => drawn("line", across
        ? { x1: toX(spread[0]), x2: toX(spread[1]), y1: y, y2: y, style: `stroke: ${color}; stroke-width: ${stroke}; opacity: ${opacity}` }
        : { x1: x, x2: x, y1: toY(spread[0]), y2: toY(spread[1]), style: `stroke: ${color}; stroke-width: ${stroke}; opacity: ${opacity}` });
      const faint = error.standing === "not" || point.lost ? 0.45 : 1;
      const mark = shape(group.color, x, y, { class: "mark", style: `stroke: ${color}; stroke-width: 2; fill: ${error.standing === "surely" ? color : "var(--card)"}` });
      const node = drawn("g", { class: "point", tabindex: "0", role: "button", "aria-label": `${group.label}: ${point.accuracy.said} %, ${measure.title} ${error.said}, ${data.standings[error.standing]}`, "data-label": group.label, style: `opacity: ${faint}` });
      if (point.accuracy.seeds) node.append(bar(point.accuracy.seeds, true, 1.2, 0.75));
      if (error.seeds) node.append(bar(error.seeds, false, 1.2, 0.75));
      node.append(bar(point.accuracy.images, true, 3.5, 0.3), bar(error.images, false, 3.5, 0.3));
      node.append(mark, drawn("circle", { class: "hit", cx: x, cy: y, r: 11 }));
      if (group.at) node.append(drawn("text", { class: "at", x: x + 10, y: y - 7, style: `fill: ${color}` }, group.at));
      node.addEventListener("mousemove", (event) => showHover(hoverLines(group, point, error, measure), event.clientX, event.clientY));
      node.addEventListener("focus", () => {
        const box = mark.getBoundingClientRect();
        showHover(hoverLines(group, point, error, measure), box.right, box.bottom);
      });
      node.addEventListener("mouseleave", hideHover);
      node.addEventListener("blur", hideHover);
      const first = group.cells.find((id) => data.cells[id].at[kind]) ?? group.cells[0];
      node.addEventListener("click", () => goTo(first));
      node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); goTo(first); } });
      svg.append(node);
    }
    figure.replaceChildren(svg);
  };
  if (byId("choose-measure")) {
    byId("choose-measure").addEventListener("change", drawPareto);
    byId("choose-kind")?.addEventListener("change", drawPareto);
    drawPareto();
  }

  // portraits

  const classColor = (label, portrait) => `oklch(var(--lightness, 62%) .15 ${(360 * label) / Math.max(portrait.class_names.length, 1 + Math.max(...portrait.labels))})`;
  const classLegend = (portrait) => {
    const labels = [...new Set(portrait.labels)].slice(0, 20);
    const list = element("ul", { class: "legend" });
    for (const label of labels) list.append(element("li", {}, element("span", { class: "chip", style: `--c: ${classColor(label, portrait)}` }), portrait.class_names[label] ?? String(label)));
    return list;
  };
  const cloudFigure = (title, portrait, cloud) => {
    const figure = element("figure", {}, element("figcaption", {}, title));
    const svg = drawn("svg", { viewBox: "-530 -530 1060 1060", role: "img", "aria-label": title });
    cloud.x.forEach((x, place) => {
      const label = portrait.labels[place];
      const name = portrait.class_names[label] ?? String(label);
      svg.append(drawn("circle", { cx: x, cy: -cloud.y[place], r: 11, style: `fill: ${classColor(label, portrait)}` }, drawn("title", {}, name)));
    });
    figure.append(svg);
    if (cloud.kept !== null && cloud.kept !== undefined) figure.append(element("small", {}, said(words.kept, { share: (100 * cloud.kept).toFixed(0) })));
    return figure;
  };
  const clouds = (portrait, method) => {
    const of = (owner, kind) => owner.clouds.find((it) => it.of === kind && it.method === method);
    const other = data.portraits.find((it) => it.label === portrait.before);
    const panels = [];
    if (other && of(other, "released")) panels.push(cloudFigure(said(words.before_undefended, { arm: other.label }), other, of(other, "released")));
    else if (of(portrait, "pixels")) panels.push(cloudFigure(words.before_pixels, portrait, of(portrait, "pixels")));
    for (const kind of ["clean", "released"]) if (of(portrait, kind)) panels.push(cloudFigure(words[kind], portrait, of(portrait, kind)));
    return panels.length ? element("div", { class: "clouds" }, ...panels) : element("p", {}, words.no_tsne);
  };
  const weights = (attentions) => {
    const [width, height, count] = [400, 60, attentions.length];
    const svg = drawn("svg", { class: "weights", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": words.attention });
    const most = Math.max(...attentions, 1 / count);
    attentions.forEach((value, place) => svg.append(drawn("rect", { x: (place * width) / count, width: (0.85 * width) / count, y: height - (height * value) / most, height: (height * value) / most, style: "fill: var(--run-0)" }, drawn("title", {}, String(value)))));
    const level = height - height / count / most;
    svg.append(drawn("line", { x1: 0, x2: width, y1: level, y2: level, style: "stroke: var(--ink); stroke-dasharray: 5 4" }));
    return svg;
  };
  const bars = (title, items) => {
    const list = element("ul", { class: "bars" });
    for (const [name, share, note, color] of items) {
      list.append(element("li", {}, element("span", {}, name), element("b", {}, note), element("span", { class: "bar" }, element("span", { style: `width: ${(100 * share).toFixed(1)}%; --level: ${color ?? "var(--run-0)"}` }))));
    }
    return [element("h4", {}, title), list];
  };
  const classBlock = (portrait, own) => {
    const block = element("div", {}, element("h3", {}, own.name));
    if (own.attentions.length) block.append(element("small", {}, words.attention), weights(own.attentions), element("small", {}, said(words.equal_weight, { weight: (1 / own.attentions.length).toPrecision(2) })));
    const faces = element("ul", { class: "faces" });
    const most = Math.max(...own.attentions, 1e-12);
    for (const face of own.faces) {
      const item = element("li", {}, element("img", { src: `data:image/png;base64,${face.image}`, alt: said(words.image_of, { name: own.name }), width: "64", height: "64" }));
      if (face.attention !== null) item.append(element("span", { class: "bar", style: `width: ${((100 * face.attention) / most).toFixed(0)}%` }), String(face.attention));
      if (face.shares.length) item.append(element("span", { class: "stack", title: face.shares.map((it) => it.toFixed(2)).join(" · ") }, ...face.shares.map((it, place) => element("span", { style: `width: ${(100 * it).toFixed(1)}%; background: ${colorOf(place)}` }))));
      faces.append(item);
    }
    block.append(own.faces.length ? faces : element("p", { class: "small" }, words.no_faces));
    if (own.shares.length) block.append(...bars(words.shares, own.shares.map((it, place) => [`${data.parts[portrait.part] ?? portrait.part} ${place + 1}`, it, it.toFixed(2), colorOf(place)])));
    else if (portrait.part && own.attentions.length) block.append(element("p", { class: "small" }, words.no_slots));
    if (own.gates.length) block.append(...bars(words.gates, own.gates.map((it) => [data.gates[it.name] ?? it.name, it.mean, `${it.mean} [${it.low}, ${it.high}]`])));
    return block;
  };
  const drawPortrait = () => {
    const portrait = data.portraits[Number(byId("choose-portrait").value)];
    const parts = [classLegend(portrait), clouds(portrait, byId("choose-method").value)];
    if (portrait.classes.length) parts.push(element("div", { class: "portrait-classes" }, ...portrait.classes.map((own) => classBlock(portrait, own))));
    else parts.push(element("p", { class: "small" }, words.no_attention));
    byId("portrait").replaceChildren(...parts);
  };
  if (byId("choose-portrait") && data.portraits.length) {
    byId("choose-portrait").append(...data.portraits.map((it, place) => element("option", { value: String(place) }, it.label)));
    const best = data.portraits.findIndex((it) => it.classes.length);
    byId("choose-portrait").value = String(Math.max(0, best));
    for (const id of ["choose-portrait", "choose-method"]) byId(id).addEventListener("change", drawPortrait);
    drawPortrait();
  }
  openFromAddress();
})();
