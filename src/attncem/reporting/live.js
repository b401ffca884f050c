"use strict";
(async () => {
  // A picture comes in, and stays: the page computes what leaves it, asks for the answer, and rebuilds the picture from
  // the release alone. Words are those of the catalogue, in the page's data.
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("page-data").textContent);
  const words = JSON.parse(byId("words").textContent);
  const said = (key, values = {}) => words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const number = (value, decimals) => value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  const { channels, height, width } = data.image;
  const controls = document.querySelectorAll("#camera, #file, .example");
  const status = (text, bad = false) => {
    byId("status").textContent = text;
    byId("status").classList.toggle("bad", bad);
  };

  // files: in the page, or of the server that the page comes from

  const load = async (name) => {
    const node = byId(`file-${name}`);
    if (node) return unpacked(fromText(node.textContent));
    const answer = await fetch(`files/${name}`);
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  };
  const fromText = (text) => Uint8Array.from(atob(text), (it) => it.charCodeAt(0));
  const unpacked = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  // drawing

  // colour gives red, green, blue of a place; null: nothing is there
  const paint = (canvas, columns, rows, colour) => {
    canvas.width = columns;
    canvas.height = rows;
    const image = new ImageData(columns, rows);
    for (let i = 0; i < columns * rows; i++) image.data.set(colour(i)?.concat(255) ?? [0, 0, 0, 0], 4 * i);
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  const size = height * width;
  const drawImage = (canvas, values, scale) =>
    paint(canvas, width, height, (i) => [0, 1, 2].map((c) => scale * values[(channels === 1 ? 0 : c) * size + i]));
  const drawFeature = (canvas, z, shape) => {
    const [maps, rows, columns] = shape.length === 3 ? shape : [1, ...matrix(shape, z.length)];
    const across = Math.ceil(Math.sqrt((maps * rows) / columns)), down = Math.ceil(maps / across);
    const low = z.reduce((a, b) => Math.min(a, b)), range = z.reduce((a, b) => Math.max(a, b)) - low || 1;
    paint(canvas, across * (columns + 1) - 1, down * (rows + 1) - 1, (i) => {
      const line = across * (columns + 1) - 1, y = Math.floor(i / line), x = i % line;
      const map = Math.floor(y / (rows + 1)) * across + Math.floor(x / (columns + 1));
      const [row, column] = [y % (rows + 1), x % (columns + 1)];
      const value = row < rows && column < columns ? z[(map * rows + row) * columns + column] : undefined;
      return value === undefined ? null : Array(3).fill((255 * (value - low)) / range);
    });
  };
  const matrix = (shape, count) => {
    if (shape.length === 2) return shape;
    const columns = Math.min(count, Math.ceil(Math.sqrt(count)));
    return [Math.ceil(count / columns), columns];
  };
  const shares = (logits) => {
    const most = logits.reduce((a, b) => Math.max(a, b));
    const powers = Array.from(logits, (it) => Math.exp(it - most)), total = powers.reduce((a, b) => a + b);
    return powers.map((it) => it / total);
  };
  const element = (name, text = "", ...children) => {
    const node = document.createElement(name);
    node.textContent = text;
    node.append(...children);
    return node;
  };
  const drawAnswer = (logits) => {
    const best = shares(logits).map((share, label) => ({ share, label })).sort((a, b) => b.share - a.share).slice(0, 5);
    byId("answer").replaceChildren(...best.map(({ share, label }) => {
      const bar = element("span"), track = element("span", "", bar);
      bar.style.width = `${100 * share}%`;
      track.className = "track";
      return element("li", "", element("span", data.labels[label]), element("span", `${number(100 * share, 1)} %`), track);
    }));
    return best[0].label;
  };
  const show = (id, is) => { byId(id).hidden = !is; };
  const stale = (is, ...names) => { // of another picture than the one that is shown
    for (const name of names) byId(`card-${name}`).classList.toggle("stale", is);
  };

  // what was counted

  const count = { bytes: 0, sent: 0, kept: 0 };
  const showCount = () => {
    byId("bytes").textContent = number(data.offline ? 0 : count.bytes, 0);
    const values = { bytes: number(count.bytes, 0), releases: count.sent, kept: count.kept, pictures: count.sent + count.kept };
    byId("count-note").textContent = said(data.offline ? "counted_offline" : "counted", values);
  };

  // the two halves and the attacks

  let client, server, shown = null, latest = 0;
  const decoders = new Map();
  const decoder = (stop) => {
    if (!decoders.has(stop.file))
      decoders.set(stop.file, load(stop.file).then((bytes) => attncem.openGraph(bytes, { input: "z", outputs: ["image"], file: stop.file })));
    return decoders.get(stop.file);
  };
  const begin = async () => {
    await attncem.configure({ wasm: await load("runtime.wasm") });
    const key = data.keyed ? { key: crypto.getRandomValues(new Uint8Array(32)) } : {};
    client = await attncem.openClient({ manifest: data.manifest, graph: await load("client.onnx"), ...key });
    if (data.offline) server = await attncem.openGraph(await load("server.onnx"), { input: "z", outputs: ["logits"], file: "server.onnx" });
  };
  const answered = async (released) => {
    const request = attncem.makeRequest(released, client.manifest);
    count.bytes += request.body.length;
    count.sent += 1;
    showCount();
    const started = performance.now();
    const logits = data.offline
      ? (await server(released, [1, ...data.shape]))[0]
      : await attncem.ask(location.origin, client.manifest, request, { timeout: 10, retries: 0 }); // a retry would not be counted
    return { logits, bytes: request.body.length, time: performance.now() - started };
  };

  // one picture

  const see = async (source, label = "") => {
    const turn = ++latest;
    status(said("working"));
    try {
      const { pixels, steps } = await client.pixels(source);
      const look = await client.look(pixels);
      if (turn !== latest) return;
      const picture = { pixels, ...look, label, rebuilt: new Map() };
      shown = null; // what is still computed belongs to another picture
      drawImage(byId("picture"), pixels, 1);
      byId("picture-note").textContent = [label ? said("label", { name: label }) : words.foreign, steps.length ? said("prepared", { steps: steps.join("; ") }) : ""].filter(Boolean).join(" ");
      stale(true, "sent", "answer", "rebuilt", "blind");
      if (look.onDevice) keep(picture);
      else await send(picture, turn);
      if (turn !== latest) return;
      shown = picture;
      await rebuild();
      if (turn === latest) status(said("ready"));
    } catch (error) {
      if (turn === latest) status(said("failed", { reason: error.message }), true);
    }
  };
  const keep = (picture) => {
    count.kept += 1;
    showCount();
    show("sent", false);
    show("nothing", true);
    const values = { confidence: number(100 * picture.confidence, 1), threshold: number(100 * data.threshold, 1) };
    byId("sent-note").textContent = said("kept", values);
    picture.guess = drawAnswer(picture.answers);
    byId("answer-note").textContent = said("head");
    stale(false, "sent", "answer");
  };
  const send = async (picture, turn) => {
    picture.released = await client.release(picture.z, picture.pixels);
    const { logits, bytes, time } = await answered(picture.released);
    if (turn !== latest) return;
    show("sent", true);
    show("nothing", false);
    drawFeature(byId("sent"), picture.released, data.shape);
    byId("sent-note").textContent = said(data.offline ? "would" : "bytes", { bytes: number(bytes, 0), numbers: number(picture.released.length, 0) });
    picture.guess = drawAnswer(logits);
    byId("answer-note").textContent = said(data.offline ? "page" : "server", { time: number(time, 0) });
    stale(false, "sent", "answer");
  };

  // what an attack rebuilds

  const mean = async (picture, releases) => {
    // The release that was sent, and others that the page draws and keeps: what an adversary saw who got all of them.
    const sum = Float64Array.from(picture.released), more = data.repeats ? 1 : releases;
    for (let drawn = 1; drawn < more; drawn++) {
      const next = await client.release(picture.z, picture.pixels);
      for (let i = 0; i < sum.length; i++) sum[i] += next[i];
      if (drawn % 16 === 0) {
        if (chosen().releases === releases) byId("rebuilt-note").textContent = said("drawing", { count: drawn });
        await new Promise((done) => setTimeout(done));
        if (picture !== shown) return null;
      }
    }
    return Float32Array.from(sum, (it) => it / more);
  };
  const error = (image, pixels) => image.reduce((all, it, i) => all + (it - pixels[i] / 255) ** 2, 0) / image.length;
  const chosen = () => data.stops[Number(byId("stop").value)];
  const rebuild = async () => {
    const picture = shown, stop = chosen();
    if (!picture) return;
    guess(picture, stop);
    const why = picture.onDevice ? "not_sent" : stop.file ? "" : "missing";
    show("rebuilt", !why);
    show("no-attack", why);
    byId("no-attack").textContent = why && words[why];
    byId("rebuilt-note").textContent = "";
    stale(false, "rebuilt");
    if (why) return;
    stale(true, "rebuilt");
    if (!picture.rebuilt.has(stop.file)) picture.rebuilt.set(stop.file, rebuilt(picture, stop));
    const image = await picture.rebuilt.get(stop.file);
    if (!image) picture.rebuilt.delete(stop.file);
    if (!image || picture !== shown || stop !== chosen()) return;
    drawImage(byId("rebuilt"), image, 255);
    stale(false, "rebuilt");
    const values = { attack: stop.attack, error: number(error(image, picture.pixels), 4) };
    byId("rebuilt-note").textContent = said("attack", values);
  };
  const rebuilt = async (picture, stop) => {
    const [run, z] = [await decoder(stop), await mean(picture, stop.releases)];
    if (!z) return null;
    return (await run(z, [1, ...data.shape]))[0];
  };
  const guess = (picture, stop) => {
    const ofClass = stop.blind === "class_mean" && data.class_means.length > 0 && !picture.onDevice; // nobody got its label
    const text = ofClass ? data.class_means[picture.guess] : data.mean;
    show("blind", text);
    stale(false, "blind");
    byId("blind-note").textContent = words.no_guess;
    if (!text) return;
    const image = fromText(text);
    drawImage(byId("blind"), image, 1);
    const values = { guess: ofClass ? data.guesses.class_mean : data.guesses.mean_image };
    byId("blind-note").textContent = said("guess", { ...values, error: number(error(Array.from(image, (it) => it / 255), picture.pixels), 4) });
  };

  // controls

  const stops = byId("stop");
  stops.addEventListener("input", () => {
    data.stops.forEach((_, place) => show(`stop-${place}`, place === Number(stops.value)));
    stops.setAttribute("aria-valuetext", said("stop", { count: chosen().releases }));
    rebuild().catch((problem) => status(said("failed", { reason: problem.message }), true));
  });
  const press = (button) => {
    for (const other of document.querySelectorAll(".example")) other.setAttribute("aria-pressed", String(other === button));
  };
  for (const button of document.querySelectorAll(".example")) {
    button.addEventListener("click", () => {
      press(button);
      see(new Blob([fromText(button.firstElementChild.src.split(",")[1])], { type: "image/png" }), button.dataset.label);
    });
    button.addEventListener("keydown", (event) => {
      const next = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
      const other = next && button.parentElement[next]?.firstElementChild;
      if (!other) return;
      event.preventDefault();
      button.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
    });
  }
  const seeFile = (files) => {
    const file = [...(files ?? [])].find((it) => it.type.startsWith("image/"));
    if (!file || byId("file").disabled) return;
    press(null);
    see(file);
  };
  byId("file").addEventListener("change", (event) => {
    seeFile(event.target.files);
    event.target.value = "";
  });
  document.addEventListener("paste", (event) => seeFile(event.clipboardData?.files));
  for (const kind of ["dragover", "dragleave", "drop"])
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      document.body.classList.toggle("over", kind === "dragover");
      if (kind === "drop") seeFile(event.dataTransfer?.files);
    });

  // the camera

  const video = byId("video");
  let stream = null, timer = 0;
  const take = () => {
    if (!video.videoWidth) return Promise.resolve();
    press(null);
    const frame = document.createElement("canvas");
    [frame.width, frame.height] = [video.videoWidth, video.videoHeight];
    frame.getContext("2d").drawImage(video, 0, 0);
    return see(frame);
  };
  const often = () => {
    clearTimeout(timer);
    if (stream && byId("often").checked) timer = setTimeout(() => take().finally(often), 1000);
  };
  byId("camera").addEventListener("click", async () => {
    if (stream) {
      for (const track of stream.getTracks()) track.stop();
      stream = video.srcObject = null;
    } else {
      try {
        stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
        video.srcObject = stream;
        await video.play();
      } catch (problem) {
        stream = null;
        status(said("no_camera", { reason: problem.message }), true);
      }
    }
    show("stage", stream);
    byId("camera").setAttribute("aria-pressed", String(stream !== null));
    often();
  });
  byId("take").addEventListener("click", take);
  byId("often").addEventListener("change", often);

  // start

  try {
    await begin();
  } catch (problem) {
    status(said("failed", { reason: problem.message }), true);
    return;
  }
  for (const control of controls) control.disabled = false;
  const first = document.querySelector(".example");
  if (first) first.click();
  else status(said("choose"));
  for (const stop of data.stops) if (stop.file) decoder(stop).catch(() => {});
})();
