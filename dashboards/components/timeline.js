// Draws the rows of one window; every move asks the server for the detail of the new one.
const GUTTER = 118, AXIS = 22, LANE = 17, GAP = 3, RANK_GAP = 6, SETTLE_MS = 120;
const TYPES = { float64: Float64Array, uint32: Uint32Array, int32: Int32Array };

function decode(blob) {
  const bytes = blob instanceof Uint8Array ? blob : new Uint8Array(blob);
  const buffer = bytes.slice().buffer;
  const length = new DataView(buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  for (const [name, type] of data.columns) {
    data[name] = new TYPES[type](buffer, at, data.rows);
    at += Math.ceil(data[name].byteLength / 8) * 8;
  }
  data.bounds = new Uint32Array(data.lanes.length + 1);
  for (let i = 0; i < data.rows; i++) data.bounds[data.lane[i] + 1] = i + 1;
  for (let l = 1; l <= data.lanes.length; l++) data.bounds[l] = Math.max(data.bounds[l], data.bounds[l - 1]);
  let y = AXIS;
  data.tops = data.lanes.map((lane, l) => {
    if (l) y += LANE + GAP + (lane.rank !== data.lanes[l - 1].rank ? RANK_GAP : 0);
    return y;
  });
  data.height = y + LANE + 8;
  return data;
}

function timed(ns) {
  const size = Math.abs(ns);
  for (const [factor, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
    if (size >= factor) return `${Number((ns / factor).toPrecision(6))} ${unit}`;
  return `${Math.round(ns)} ns`;
}

function sized(bytes) {
  for (const [factor, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (bytes >= factor) return `${(bytes / factor).toFixed(2)} ${unit}`;
  return `${bytes} B`;
}

const KINDS = ["compute", "communication", "copy", "unknown class"];

function described(data, i) {
  const lane = data.lanes[data.lane[i]];
  const start = data.from_ns + data.start[i];
  const lines = [data.names[data.name[i]]];
  if (data.count[i] > 1) {
    lines[0] = `${data.count[i]} operations, the longest: ${lines[0]}`;
    lines.push(`${lane.label.trim()}: busy ${timed(data.busy[i])} within ${timed(data.length[i])}, from ${timed(start)}`);
    return lines.join("\n");
  }
  const step = data.step[i] >= 0 ? `, step ${data.step[i]}` : "";
  lines.push(`rank · stream ${lane.label.trim()}${step}: ${timed(data.length[i])} from ${timed(start)} (${KINDS[data.kind[i]]})`);
  if (data.kind[i] === 1) {
    const op = data.ops[data.op[i]] ?? "operation unknown";
    const size = data.size[i] >= 0 ? sized(data.size[i]) : "size unknown";
    const wait = data.wait[i] >= 0
      ? `waited ${timed(data.wait[i])}, then moved data for ${timed(data.length[i] - data.wait[i])}`
      : "waiting unknown: not matched across ranks";
    lines.push(`${op}, ${size}, ${wait}` + (data.collective[i] >= 0 ? `; collective ${data.collective[i]}` : ""));
  }
  return lines.join("\n");
}

class Timeline {
  constructor(root) {
    this.root = root;
    this.canvas = root.querySelector("canvas");
    this.tip = root.querySelector(".tip");
    this.detail = root.querySelector(".detail");
    this.selected = null;
    this.listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas.parentElement);
  }

  show(component) {
    this.component = component;
    const data = decode(component.data);
    if (data.run !== this.data?.run) { this.view = [data.from_ns, data.to_ns]; this.selected = null; }
    this.data = data;
    if (this.asked) { this.root.dataset.answerMs = Math.round(performance.now() - this.asked); this.asked = null; }
    this.legend();
    this.find();
    this.draw();
  }

  legend() {
    const told = this.root.querySelector(".legend");
    told.replaceChildren();
    const entry = (label, color, hatched) => {
      const item = document.createElement("span"), swatch = document.createElement("i");
      swatch.style.background = hatched
        ? `repeating-linear-gradient(45deg, ${color} 0 3px, transparent 3px 6px)` : color;
      item.append(swatch, label);
      told.append(item);
    };
    KINDS.forEach((kind, k) => {
      entry(kind, this.data.colors[k]);
      if (k === 1) entry("waiting for a late rank", this.data.waiting, true);
    });
  }

  style(name) { return getComputedStyle(this.root).getPropertyValue(name).trim(); }

  draw() {
    const { data, canvas } = this;
    if (!data || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = data.height;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `11px ${this.style("--st-font") || "sans-serif"}`;
    pen.textBaseline = "middle";
    this.frame(pen, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 0, width - GUTTER, height);
    pen.clip();
    const drawn = this.bars(pen, width);
    this.links(pen, width);
    pen.restore();
    this.root.dataset.drawn = drawn;
    this.root.dataset.view = this.view.map(Math.round).join(",");
    this.root.querySelector(".window").textContent =
      `${timed(this.view[0])} to ${timed(this.view[1])} (${timed(this.view[1] - this.view[0])})`;
    canvas.setAttribute("aria-label", `Timeline of ${data.lanes.length} streams, ${drawn} bars`);
  }

  x(ns, width) { return GUTTER + ((ns - this.view[0]) / (this.view[1] - this.view[0])) * (width - GUTTER); }

  frame(pen, width, height) {
    const text = this.style("--st-text-color") || "#444";
    const line = this.style("--st-border-color") || "#8884";
    pen.fillStyle = text;
    this.data.lanes.forEach((lane, l) => {
      const y = this.data.tops[l];
      pen.fillText(lane.label, 2, y + LANE / 2, GUTTER - 8);
      if (l && lane.rank !== this.data.lanes[l - 1].rank) {
        pen.fillStyle = line;
        pen.fillRect(0, y - (RANK_GAP + GAP) / 2, width, 1);
        pen.fillStyle = text;
      }
    });
    const span = this.view[1] - this.view[0];
    let step = 10 ** Math.floor(Math.log10(span / 6));
    while (span / step > 9) step *= span / step > 18 ? 5 : 2;
    for (let t = Math.ceil(this.view[0] / step) * step; t <= this.view[1]; t += step) {
      const x = this.x(t, width);
      pen.fillStyle = line;
      pen.fillRect(x, AXIS - 4, 1, height - AXIS);
      pen.fillStyle = text;
      const label = timed(t), room = pen.measureText(label).width;
      if (x + room + 4 < width) pen.fillText(label, x + 3, 9);
    }
  }

  hatch(pen) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const ink = tile.getContext("2d");
    ink.fillStyle = `${this.data.waiting}55`;
    ink.fillRect(0, 0, 6, 6);
    ink.strokeStyle = this.data.waiting;
    ink.lineWidth = 2;
    ink.beginPath();
    for (const d of [-6, 0, 6]) { ink.moveTo(d, 6); ink.lineTo(d + 6, 0); }
    ink.stroke();
    return pen.createPattern(tile, "repeat");
  }

  bars(pen, width) {
    const { data, view } = this;
    const scale = (width - GUTTER) / (view[1] - view[0]), origin = data.from_ns - view[0];
    const hatch = this.hatch(pen);
    let drawn = 0;
    for (let l = 0; l < data.lanes.length; l++) {
      const y = data.tops[l];
      let painted = -1;
      for (let i = data.bounds[l]; i < data.bounds[l + 1]; i++) {
        const left = GUTTER + (data.start[i] + origin) * scale, long = data.length[i] * scale;
        if (left + long < GUTTER || left > width || (long < 1 && left + long <= painted)) continue;
        const w = Math.max(1, long > 4 ? long - 0.6 : long);
        painted = left + w;
        drawn += 1;
        pen.globalAlpha = data.count[i] > 1 ? 0.35 + 0.65 * Math.min(1, data.busy[i] / Math.max(1, data.length[i])) : 1;
        pen.fillStyle = data.colors[data.kind[i]];
        pen.fillRect(left, y, w, LANE);
        pen.globalAlpha = 1;
        if (data.wait[i] > 0) this.waiting(pen, hatch, left, y, Math.min(w, data.wait[i] * scale));
        if (long > 46) this.caption(pen, data.names[data.name[i]], left, y, w, width);
      }
    }
    return drawn;
  }

  waiting(pen, hatch, left, y, w) {
    if (w < 0.5) return;
    pen.fillStyle = this.style("--st-background-color") || "#fff";
    pen.fillRect(left, y, w, LANE);
    pen.fillStyle = hatch;
    pen.fillRect(left, y, w, LANE);
  }

  caption(pen, name, left, y, w, width) {
    const from = Math.max(left, GUTTER) + 3, room = Math.min(left + w, width) - from - 3;
    if (room < 34) return;
    let text = name;
    const fits = Math.floor(room / 6);
    if (text.length > fits) text = `${text.slice(0, Math.max(1, fits - 1))}…`;
    pen.fillStyle = "#ffffffd0";
    pen.fillRect(from - 1, y + 2, Math.min(room, pen.measureText(text).width) + 3, LANE - 4);
    pen.fillStyle = "#10161c";
    pen.fillText(text, from, y + LANE / 2 + 0.5, room);
  }

  links(pen, width) {
    const { data, selected } = this;
    if (selected === null || selected.row < 0) return;
    const mark = this.style("--st-text-color") || "#000";
    pen.strokeStyle = mark;
    pen.lineWidth = 2;
    const box = (i) => {
      const x = this.x(data.from_ns + data.start[i], width);
      const w = Math.max(2, this.x(data.from_ns + data.start[i] + data.length[i], width) - x);
      pen.strokeRect(x, data.tops[data.lane[i]], w, LANE);
      return [x, x + w, data.tops[data.lane[i]] + LANE / 2];
    };
    if (selected.collective < 0) { box(selected.row); return; }
    const found = [];
    for (let i = 0; i < data.rows; i++) if (data.collective[i] === selected.collective) found.push(box(i));
    pen.lineWidth = 1.5;
    for (const side of [0, 1]) {
      pen.setLineDash(side ? [] : [4, 3]);
      pen.beginPath();
      found.forEach((at, n) => (n ? pen.lineTo(at[side], at[2]) : pen.moveTo(at[side], at[2])));
      pen.stroke();
    }
    pen.setLineDash([]);
    this.root.dataset.linked = found.length;
  }

  hit(event) {
    const { data } = this, place = this.canvas.getBoundingClientRect();
    const px = event.clientX - place.left, py = event.clientY - place.top;
    const lane = data.tops.findIndex((top) => py >= top && py < top + LANE + GAP);
    if (lane < 0 || px < GUTTER) return -1;
    const perPixel = (this.view[1] - this.view[0]) / (place.width - GUTTER);
    const t = this.view[0] + (px - GUTTER) * perPixel - data.from_ns;
    let low = data.bounds[lane], high = data.bounds[lane + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.start[middle] <= t + 2 * perPixel) low = middle + 1; else high = middle;
    }
    let best = -1, nearest = 3 * perPixel;
    for (let i = low - 1; i >= Math.max(data.bounds[lane], low - 200); i--) {
      const off = Math.max(data.start[i] - t, t - data.start[i] - data.length[i], 0);
      if (off < nearest) { nearest = off; best = i; if (off === 0) break; }
    }
    return best;
  }

  select(i) {
    const { data } = this;
    if (i < 0) { this.selected = null; this.detail.textContent = ""; this.root.dataset.linked = 0; this.draw(); return; }
    this.selected = {
      row: i, collective: data.count[i] === 1 ? data.collective[i] : -1, lane: data.lane[i],
      start: data.from_ns + data.start[i], length: data.length[i],
    };
    this.detail.textContent = described(data, i);
    this.draw();
  }

  // The rows are others after every answer: find the selected one among them.
  find() {
    const { data, selected } = this;
    if (!selected) return;
    selected.row = -1;
    for (let i = data.bounds[selected.lane]; i < data.bounds[selected.lane + 1]; i++)
      if (data.from_ns + data.start[i] === selected.start && data.length[i] === selected.length) selected.row = i;
    if (selected.row >= 0) this.detail.textContent = described(data, selected.row);
  }

  move(low, high) {
    const { first_ns: first, last_ns: last } = this.data, whole = Math.max(1, last - first);
    const span = Math.min(Math.max(high - low, 20), whole * 1.02);
    const middle = (low + high) / 2;
    let from = middle - span / 2;
    from = Math.min(Math.max(from, first - whole * 0.01), last + whole * 0.01 - span);
    this.view = [from, from + span];
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.asked = performance.now();
      this.component.setStateValue("window", {
        from_ns: Math.floor(this.view[0]), to_ns: Math.ceil(this.view[1]),
        pixels: Math.round(this.canvas.clientWidth - GUTTER),
      });
    }, SETTLE_MS);
  }

  zoom(factor, at = 0.5) {
    const span = this.view[1] - this.view[0], anchor = this.view[0] + span * at;
    this.move(anchor - span * factor * at, anchor + span * factor * (1 - at));
  }

  pan(share) {
    const by = (this.view[1] - this.view[0]) * share;
    this.move(this.view[0] + by, this.view[1] + by);
  }

  fill(i) {
    const start = this.data.from_ns + this.data.start[i], long = Math.max(10, this.data.length[i]);
    this.select(i);
    this.move(start - long * 0.25, start + long * 1.25);
  }

  // Selects the next operation of the lane, or the one at the same time in the next lane.
  choose(by, lanes = 0) {
    const { data, selected } = this, bounds = data.bounds;
    let lane = (selected ? selected.lane : 0) + lanes;
    const there = () => lane >= 0 && lane < data.lanes.length;
    while (there() && bounds[lane] === bounds[lane + 1]) lane += lanes || 1;
    if (!there()) return;
    let i = bounds[lane];
    if (selected && !lanes && selected.row >= 0) i = selected.row + by;
    else {
      const at = (selected ? selected.start : this.view[0]) - data.from_ns;
      while (i < bounds[lane + 1] - 1 && data.start[i] + data.length[i] <= at) i += 1;
    }
    this.select(Math.min(Math.max(i, bounds[lane]), bounds[lane + 1] - 1));
  }

  act(what) {
    const { first_ns: first, last_ns: last } = this.data;
    const acts = {
      in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.3),
      right: () => this.pan(0.3), all: () => this.move(first, last),
      next: () => this.choose(1), previous: () => this.choose(-1),
      up: () => this.choose(0, -1), down: () => this.choose(0, 1),
      fill: () => { if (this.selected?.row >= 0) this.fill(this.selected.row); },
    };
    acts[what]?.();
  }

  listen() {
    const { canvas } = this;
    for (const button of this.root.querySelectorAll("button"))
      button.onclick = () => this.act(button.dataset.do);
    const keys = { w: "in", "+": "in", "=": "in", s: "out", "-": "out", a: "left", ArrowLeft: "left",
      d: "right", ArrowRight: "right", 0: "all", n: "next", p: "previous", ArrowUp: "up",
      ArrowDown: "down", Enter: "fill" };
    canvas.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || !keys[event.key]) return;
      event.preventDefault();
      this.act(keys[event.key]);
    };
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const place = canvas.getBoundingClientRect();
      const at = Math.max(0, (event.clientX - place.left - GUTTER) / (place.width - GUTTER));
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
    }, { passive: false });
    canvas.onpointerdown = (event) => {
      this.drag = { x: event.clientX, view: [...this.view], moved: false };
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => this.over(event);
    canvas.onpointerup = (event) => {
      const still = this.drag && !this.drag.moved;
      this.drag = null;
      if (still) this.select(this.hit(event));
    };
    canvas.onpointerleave = () => { this.tip.style.display = "none"; };
    canvas.ondblclick = (event) => {
      const i = this.hit(event);
      if (i >= 0) this.fill(i);
    };
  }

  over(event) {
    if (this.drag) {
      const by = event.clientX - this.drag.x;
      if (Math.abs(by) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      const perPixel = (this.drag.view[1] - this.drag.view[0]) / (this.canvas.clientWidth - GUTTER);
      this.move(this.drag.view[0] - by * perPixel, this.drag.view[1] - by * perPixel);
      return;
    }
    const i = this.hit(event), { tip } = this;
    if (i < 0) { tip.style.display = "none"; return; }
    const place = this.canvas.getBoundingClientRect();
    tip.textContent = described(this.data, i);
    tip.style.display = "block";
    const x = event.clientX - place.left;
    tip.style.left = `${Math.max(0, Math.min(x + 12, place.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY - place.top + 16}px`;
  }
}

export default function (component) {
  const root = component.parentElement.querySelector(".timeline");
  root.traceq ??= new Timeline(root);
  root.traceq.show(component);
}
