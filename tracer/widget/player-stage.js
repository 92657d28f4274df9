/**
 * The pictures of one operation: each tensor a box of elements with named edges, drawn on a canvas, and its text beside
 * it. Where elements stand comes from player-model.js; what is said comes with the data.
 */

import { align, each, gaps, inner, ravel, reads, scene, short, spot, within } from "./player-model.js";

const LENGTH = 900; // milliseconds that an operation moves
const FAMILY = "ui-monospace, Menlo, Consolas, monospace";
const COLOURS = ["cell", "rim", "ink", "soft", "lit", "lit-rim", "ground", "fill"];

/** Make an element with properties, attributes (names with a dash, `role`, `class`) and children. */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Return a text with the axes in it (`[B, T, C]`, `H=3`) in their colours; its other words are no axes. */
export function coloured(text, colours) {
  return text.split(/(\[[^[\]]*\]|[^\s=]+=\d+)/).flatMap((part, at) => (at % 2 ? symbols(part, colours) : [part]));
}

/** Return a text with every name of an axis in its colour. */
export function symbols(text, colours) {
  const nodes = [];
  let end = 0;
  for (const { 0: name, index } of text.matchAll(/[A-Za-z_][A-Za-z_0-9]*/g)) {
    if (!Object.hasOwn(colours, name) || name === "of" || text.slice(0, index).endsWith(" of ")) continue;
    nodes.push(text.slice(end, index), axisNode(name, colours));
    end = index + name.length;
  }
  return [...nodes, text.slice(end)];
}

function axisNode(name, colours) {
  const node = make("b", {}, name);
  const [light, dark] = colours[name];
  node.style.color = light;
  node.style.color = `light-dark(${light}, ${dark})`; // where it is not known, the line above stays
  return node;
}

const mix = (a, b, p) => a + (b - a) * p;
const ease = (p) => p * p * (3 - 2 * p);
const clamp = (p) => Math.min(1, Math.max(0, p));

// ---------------------------------------------------------------- one box

/** One tensor: its picture, and its text below. */
class Box {
  constructor(stage, drawn, role, number) {
    Object.assign(this, { stage, role, number, ...drawn });
    const { words, colours } = stage;
    const { tensor } = this;
    const label = coloured(`${tensor.label}`, colours);
    const name = tensor.name ? [make("code", {}, tensor.name), " "] : [];
    this.canvas = make("canvas", {
      role: "img",
      "aria-label": [tensor.name, tensor.label, tensor.about].filter(Boolean).join(", "),
    });
    this.holder = make("div", { class: "tp-canvas" }, this.canvas);
    this.node = make(
      "figure",
      { class: "tp-box", "data-role": role, "data-label": tensor.label, "data-shape": tensor.shape.join(",") },
      make(
        "figcaption",
        {},
        make("span", { class: "tp-label" }, ...name, ...label),
        make("small", {}, ...coloured(tensor.about, colours)),
      ),
      this.holder,
    );
    this.edges = this.makeEdges();
    this.missing = tensor.shape.some((n, axis) => this.shown[axis].length < n);
    if (role === "out" && stage.look.one) this.node.append(make("small", {}, words.sum));
    if (this.missing) this.node.append(make("small", { class: "tp-missing" }, words.hidden));
  }

  /** The edges: a line over the first block of an axis, with the name and the size of the axis. */
  makeEdges() {
    const { tensor, dirs, stage } = this;
    const strides = ["move", "regroup"].includes(stage.look.kind) && tensor.stride;
    return tensor.axes.map((axis, at) => {
      const name = tensor.origins?.[at] || axis;
      const across = dirs.h.includes(at);
      const axes = across ? dirs.h : dirs.v;
      const level = axes.indexOf(at);
      const text = name === String(tensor.shape[at]) ? name : `${name}=${tensor.shape[at]}`;
      const note = strides ? ` ${stage.words.stride.replace("{n}", tensor.stride[at])}` : "";
      const length = this.place.reach[at];
      return { at, axis, across, level, text, note, length };
    });
  }

  /** Choose the size of the cells for so much room, and make the canvas as large as it needs. */
  fit(room, high) {
    const context = this.canvas.getContext("2d");
    context.font = this.stage.font;
    const wide = (text) => context.measureText(text).width;
    const inward = this.edges.toSorted((a, b) => a.level - b.level);
    const [across, down] = [true, false].map((way) => inward.filter((edge) => edge.across === way));
    this.top = across.length * this.stage.edge + 4;

    // words along an edge where they fit beside it (they take little room), else before it, in two lines
    down.forEach((edge) => (edge.turned = true));
    this.fitCells(room, high, down, wide);
    down.forEach((edge) => (edge.turned = edge.length * this.ch >= wide(edge.text + edge.note)));
    this.fitCells(room, high, down, wide);
    if (this.margin > 0.3 * room) {
      for (const edge of down) if (!edge.turned) edge.note = ""; // the strides stand above the picture too
      this.fitCells(room, high, down, wide);
    }

    const { width, height } = this.place;
    const right = Math.max(width * this.cw, ...across.map((edge) => wide(edge.text + edge.note)));
    const below = Math.max(
      height * this.ch,
      ...down.map((edge) => (edge.turned ? wide(edge.text + edge.note) : edge.note ? 34 : 20)),
    );
    this.wide = Math.ceil(this.margin + right + 6);
    this.high = Math.ceil(this.top + below + 6);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.wide * ratio;
    this.canvas.height = this.high * ratio;
    this.canvas.style.width = `${this.wide}px`;
    this.canvas.style.height = `${this.high}px`;
    this.node.style.maxWidth = `min(100%, ${Math.max(Math.floor(room), this.wide)}px)`;
    this.cells = this.makeCells();
  }

  fitCells(room, high, down, wide) {
    this.left = down.map((edge) =>
      edge.turned ? this.stage.edge + 3 : Math.max(wide(edge.text), wide(edge.note)) + 12,
    );
    this.margin = this.left.reduce((sum, n) => sum + n, 2);
    const { values } = this.tensor;
    const { width, height } = this.place;
    const { scale } = this.stage;
    this.cw = Math.max(1, Math.min(values ? 46 * scale : 24 * scale, (room - this.margin - 8) / width));
    this.ch = Math.max(1, Math.min(values ? 26 * scale : 24 * scale, (high - this.top) / height));
    this.numbers = Boolean(values) && this.cw >= 24 && this.ch >= 14; // else the elements alone; a chosen one says its number
    if (!this.numbers) this.cw = this.ch = Math.min(this.cw, this.ch);
  }

  makeCells() {
    const { tensor, shown, dirs, place: where } = this;
    const cells = [];
    each(shown, (index) => {
      const [x, y] = spot(index, shown, dirs, where.offsets);
      const value = tensor.values?.[ravel(index, tensor.shape)];
      const wave = (x / where.width + y / where.height) / 2;
      cells.push({
        index,
        x: this.margin + x * this.cw,
        y: this.top + y * this.ch,
        wave,
        value,
        tint: 0,
        hatched: false,
      });
    });
    return cells;
  }

  /** Return the cell under a point of the canvas. */
  cellAt(x, y) {
    return (
      this.cells.find((cell) => x >= cell.x && x < cell.x + this.cw && y >= cell.y && y < cell.y + this.ch) ?? null
    );
  }

  /** Give an edge's line and the place of its words. */
  geometry(edge) {
    const { margin, top, cw, ch, left } = this;
    if (edge.across) {
      const y = top - 4 - edge.level * this.stage.edge;
      return { x0: margin, y0: y, x1: margin + edge.length * cw, y1: y, tx: margin, ty: y - 4 };
    }
    const before = left.slice(0, edge.level + 1).reduce((sum, n) => sum + n, 0);
    const x = margin - before + left[edge.level] - 5;
    const words = edge.turned ? { tx: x - 5, ty: top } : { tx: x - left[edge.level] + 8, ty: top + 11 };
    return { x0: x, y0: top, x1: x, y1: top + edge.length * ch, ...words };
  }

  drawEdges(context, ink, from, p) {
    context.font = this.stage.font;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    for (const edge of this.edges) {
      let g = this.geometry(edge);
      const old = from?.get(edge.at);
      if (old && p < 1) g = Object.fromEntries(Object.keys(g).map((key) => [key, mix(old[key], g[key], p)]));
      context.globalAlpha = from && !old ? p : 1;
      context.strokeStyle = context.fillStyle = this.stage.axisColour(edge.axis) ?? ink.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(g.x0, g.y0);
      context.lineTo(g.x1, g.y1);
      const [dx, dy] = edge.across ? [0, 3] : [3, 0];
      for (const [x, y] of [
        [g.x0, g.y0],
        [g.x1, g.y1],
      ]) {
        context.moveTo(x, y);
        context.lineTo(x + dx, y + dy);
      }
      context.stroke();
      this.drawWords(context, edge, g, ink);
    }
    context.globalAlpha = 1;
  }

  /** The name and the size of an axis, and its stride; upwards along an edge that is long enough. */
  drawWords(context, edge, g, ink) {
    const long = context.measureText(edge.text).width;
    context.save();
    context.translate(g.tx, g.ty);
    if (edge.turned) {
      context.translate(0, long + context.measureText(edge.note).width);
      context.rotate(-Math.PI / 2);
    }
    context.fillText(edge.text, 0, 0);
    context.fillStyle = ink.soft;
    if (edge.across || edge.turned) context.fillText(edge.note, long, 0);
    else context.fillText(edge.note.trim(), 0, this.stage.letter + 2);
    context.restore();
  }
}

// ---------------------------------------------------------------- the stage

/** The boxes of one operation, their movement, and which elements are lit. */
export class Stage {
  constructor(words, colours, tensors) {
    Object.assign(this, { words, colours, tensors });
    this.probe = make("span", { hidden: true, class: "tp-probe" });
    this.sides = {
      in: make("div", { class: "tp-boxes" }),
      out: make("div", { class: "tp-boxes" }),
    };
    this.told = make("p", { class: "tp-told", "aria-live": "polite" });
    this.arrow = make("div", { class: "tp-arrow", "aria-hidden": "true" });
    const side = (key, title) =>
      make("section", { class: "tp-side", "aria-label": title }, make("h3", {}, title), this.sides[key]);
    this.row = make("div", { class: "tp-row" }, side("in", words.before), this.arrow, side("out", words.after));
    this.node = make("div", { class: "tp-stage" }, this.row, this.told, this.probe);
    this.boxes = [];
    this.frame = 0;
    this.p = 1;
    this.speed = 1;
  }

  // -------------------------------------------------------------- what is shown

  /** Show an operation's look; `moving` plays it from its beginning. */
  show(look, moving) {
    cancelAnimationFrame(this.frame);
    this.look = look;
    this.lit = null;
    this.cursor = null;
    this.told.textContent = "";
    this.build();
    const still = !moving || matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.p = still ? 1 : 0;
    this.draw();
    if (!still) this.play();
  }

  build() {
    const narrow = this.width() < 560;
    this.letter = this.width() < 900 ? 12 : 14; // pixels: a projector is read from afar
    this.scale = this.letter / 12;
    this.font = `${this.letter}px ${FAMILY}`;
    this.edge = this.letter + 5; // pixels for one level of edges above the elements
    const drawn = scene(this.look, this.tensors, narrow ? 48 : 64, 40);
    const boxes = (list, role) => list.map((one, n) => new Box(this, one, role, n));
    this.ins = boxes(drawn.ins, "in");
    this.outs = boxes(drawn.outs, "out");
    this.boxes = [...this.ins, ...this.outs];
    const more = (n) => (n > 0 ? [make("p", {}, this.words.more.replace("{n}", n))] : []);
    const [left, right] = this.look.more ?? [0, 0];
    const none = (text) => make("p", { class: "tp-none" }, text);
    this.sides.in.replaceChildren(
      ...(this.ins.length ? this.ins.map((box) => box.node) : [none(this.words.none)]),
      ...more(left),
    );
    this.sides.out.replaceChildren(
      ...(this.outs.length ? this.outs.map((box) => box.node) : [none(this.words.no_result)]),
      ...more(right),
    );
    this.arrow.textContent = `${this.look.name} →`;
    this.fit();
    if (this.outs.length) this.listen(this.outs);
  }

  width() {
    return this.node.clientWidth || 640;
  }

  /** Give each box its share of the width. */
  fit() {
    const width = this.width();
    const beside = width >= 620;
    this.row.classList.toggle("tp-beside", beside);
    const shares = { in: this.ins.length, out: this.outs.length };
    const room = (role) => {
      const weight = Math.min(0.65, Math.max(0.35, shares[role] / (shares.in + shares.out || 1)));
      const side = beside ? (width - this.arrow.offsetWidth - 40) * weight : width;
      this.sides[role].parentElement.style.maxWidth = beside ? `${side}px` : "";
      const columns = Math.max(1, Math.min(shares[role], Math.floor(side / 200)));
      return (side - 15 * (columns - 1)) / columns;
    };
    for (const box of this.boxes) box.fit(room(box.role), Math.min(440, Math.max(260, window.innerHeight * 0.38)));
    this.prepare();
  }

  axisColour(axis) {
    return this.colours[axis]?.[this.dark ? 1 : 0];
  }

  /** Read the colours of the theme as they are now. */
  ink() {
    const found = {};
    for (const name of COLOURS) {
      this.probe.style.color = `var(--tp-${name})`;
      found[name] = getComputedStyle(this.probe).color;
    }
    const [red, green, blue] = found.ground.match(/[\d.]+/g).map(Number);
    this.dark = red * 0.3 + green * 0.6 + blue * 0.1 < 128;
    return found;
  }

  // -------------------------------------------------------------- what moves

  /** Work out what each element does: where it comes from, its tint, whether it is hatched. */
  prepare() {
    const { kind, about = [] } = this.look;
    const [input, output] = [this.ins[0], this.outs[0]];
    this.turns = this.edgesFrom = null;
    if (!input || !output) return;
    const read = this.look.reads?.[0]?.[0];
    if ((kind === "regroup" || kind === "move") && read) this.follow(input, output, read);
    if (kind === "cut" || kind === "join") this.tintParts();
    if (this.look.hatch) this.hatch(output, this.look.hatch);
    if (kind === "contract" || kind === "normalise" || kind === "reduce") this.turns = this.countTurns(about);
  }

  /** Let each element of the result start where it stands in the input; one axis tells them apart. */
  follow(input, output, read) {
    const shapes = [input.tensor.shape, output.tensor.shape];
    const [of, axis] = this.tintAxis(input, output);
    const indices = axis === undefined ? [] : of.shown[axis];
    const tint = (from, to) =>
      indices.length && (indices.indexOf((of === input ? from : to)[axis]) + 1) / indices.length;
    const scale = Math.min(
      1,
      (output.wide - output.margin - 6) / (input.place.width * output.cw),
      (output.high - output.top) / (input.place.height * output.ch),
    );
    const known = new Map(input.cells.map((cell) => [ravel(cell.index, shapes[0]), cell]));
    for (const cell of output.cells) {
      const source = reads(read, cell.index, ...shapes);
      if (!source || source.includes("all")) continue;
      cell.tint = tint(source, cell.index);
      const from = known.get(ravel(source, shapes[0]));
      if (!from) continue;
      from.tint = cell.tint;
      cell.from = [
        output.margin + ((from.x - input.margin) / input.cw) * output.cw * scale,
        output.top + ((from.y - input.top) / input.ch) * output.ch * scale,
      ];
    }
    input.tintColour = output.tintColour = axis === undefined ? null : of.tensor.axes[axis];
    if (this.look.kind === "move" && Array.isArray(read)) {
      this.edgesFrom = new Map();
      read.forEach((axis, at) => {
        const edge = input.edges.find((one) => one.at === at);
        const g = input.geometry(edge);
        const [sx, sy] = [(output.cw / input.cw) * scale, (output.ch / input.ch) * scale];
        const x = (value) => output.margin + (value - input.margin) * (value > input.margin ? sx : 1);
        const y = (value) => output.top + (value - input.top) * (value > input.top ? sy : 1);
        this.edgesFrom.set(axis, { x0: x(g.x0), y0: y(g.y0), x1: x(g.x1), y1: y(g.y1), tx: x(g.tx), ty: y(g.ty) });
      });
    }
  }

  /** Give the parts that a tensor is cut into, or joined from, a tint each. */
  tintParts() {
    const cut = this.look.kind === "cut";
    const parts = cut ? this.outs : this.ins;
    if (parts.length < 2) return;
    const whole = cut ? this.ins[0] : this.outs[0];
    const axis = this.look.about[0] ?? 0;
    const known = new Map(whole.cells.map((cell) => [cell.index.join(), cell]));
    for (const box of this.boxes) box.tintColour = whole.tensor.axes[axis];
    for (const [n, part] of parts.entries()) for (const cell of part.cells) cell.tint = (n + 1) / parts.length;
    for (const [o, out] of this.outs.entries()) {
      for (const cell of out.cells) {
        for (const [n, input] of this.ins.entries()) {
          const found = reads(this.look.reads?.[o]?.[n], cell.index, input.tensor.shape, out.tensor.shape);
          const other = cut ? found && known.get(found.join()) : found && cell;
          if (other) other.tint = ((cut ? o : n) + 1) / parts.length;
        }
      }
    }
  }

  /** Return the box and the axis whose indices get tints: one that was split off, joined or moved. */
  tintAxis(input, output) {
    const { kind, about = [] } = this.look;
    const [a, b] = [input.tensor.shape, output.tensor.shape];
    const of = kind === "move" || a.length > b.length ? input : output;
    const lengths = of.tensor.shape;
    const groups = kind === "move" ? [about] : (align(a, b) ?? []).map((pair) => pair[of === input ? 0 : 1]);
    const parts = groups.map((axes) => axes.filter((axis) => lengths[axis] > 1)).find((axes) => axes.length > 1) ?? [];
    return [of, kind === "move" ? parts.toSorted((x, y) => lengths[x] - lengths[y])[0] : parts[0]];
  }

  /** Hatch what the mask hides, where the mask's numbers are known; else all it covers, more faintly. */
  hatch(output, number) {
    const mask = this.ins[number];
    for (const cell of output.cells) {
      if (!mask) continue;
      const at = reads(this.look.reads?.[0]?.[number], cell.index, mask.tensor.shape, output.tensor.shape);
      const value = at && !at.includes("all") ? mask.tensor.values?.[ravel(at, mask.tensor.shape)] : undefined;
      cell.hatched = value === undefined ? "perhaps" : value ? "yes" : false;
    }
    for (const cell of mask?.cells ?? [])
      cell.hatched = cell.value === undefined ? "perhaps" : cell.value ? "yes" : false;
  }

  /** Return the indices that are gone through one after another: of the axis that is contracted, summed or normalised. */
  countTurns(about) {
    const entries = this.look.reads?.[0]?.[0];
    const axis = about[0] ?? (Array.isArray(entries) ? entries.indexOf("all") : -1);
    return this.ins[0]?.shown[axis] ? { axis, indices: this.ins[0].shown[axis] } : null;
  }

  play() {
    const began = performance.now();
    const tick = (now) => {
      this.p = clamp(((now - began) * this.speed) / LENGTH);
      this.draw();
      if (this.p < 1) this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  // -------------------------------------------------------------- drawing

  draw() {
    if (!this.node.isConnected) return; // nobody sees it, and it has no colours yet: when it comes to a page it is fitted
    this.node.dataset.moving = String(this.p < 1);
    const ink = this.ink();
    for (const box of this.boxes) this.drawBox(box, ink);
  }

  drawBox(box, ink) {
    const context = box.canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    const first = box === this.outs[0];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, box.wide, box.high);
    box.drawEdges(context, ink, first && this.p < 1 ? this.edgesFrom : null, ease(this.p));
    const isLit = this.litIn(box);
    for (const cell of box.cells) this.drawCell(context, box, cell, ink, isLit(cell));
    this.drawBreaks(context, box, ink);
    if (first && this.look.kind === "normalise" && this.look.one) this.drawSums(context, box, ink);
  }

  /** Return a test for the elements of one box that are lit now: by the pointer, or by the movement. */
  litIn(box) {
    if (this.lit) {
      if (box.role === "out") return (cell) => this.lit.box === box && this.lit.cell === cell;
      const found = this.lit.reads[box.number];
      return (cell) => within(found, cell.index);
    }
    const turn = this.p < 1 && this.turns ? this.turns.indices[Math.floor(this.p * this.turns.indices.length)] : null;
    if (turn === null || turn === undefined || box.role === "out") return () => false;
    const axis = box.number === 0 ? this.turns.axis : this.sameAxis(box);
    return (cell) => axis >= 0 && cell.index[axis] === turn;
  }

  /** Return the axis of another input that is gone through with the first one's. */
  sameAxis(box) {
    const entries = this.look.reads?.[0]?.[box.number];
    return Array.isArray(entries) ? entries.indexOf("all") : -1;
  }

  drawCell(context, box, cell, ink, lit) {
    const { kind } = this.look;
    const result = box.role === "out";
    const moving = result && this.p < 1;
    let [x, y] = [cell.x, cell.y];
    let alpha = 1;
    let filled = 1;
    if (moving && cell.from) {
      x = mix(cell.from[0], x, ease(this.p));
      y = mix(cell.from[1], y, ease(this.p));
    } else if (moving && kind === "contract") {
      filled = this.p;
    } else if (moving && !this.look.hatch) {
      alpha = clamp((this.p * 1.3 - cell.wave) / 0.3);
    }
    if (alpha <= 0) return;
    const gap = Math.min(1, box.cw / 6);
    const [w, h] = [box.cw - gap, box.ch - gap];
    context.globalAlpha = alpha;
    context.fillStyle = ink.cell;
    context.fillRect(x, y, w, h);
    if (result && filled > 0 && kind === "contract") {
      context.fillStyle = ink.fill;
      context.fillRect(x, y + h * (1 - filled), w, h * filled);
    }
    if (cell.tint && box.tintColour) {
      context.globalAlpha = alpha * (0.12 + 0.5 * cell.tint);
      context.fillStyle = this.axisColour(box.tintColour) ?? ink.soft;
      context.fillRect(x, y, w, h);
      context.globalAlpha = alpha;
    }
    if (result && kind === "normalise" && typeof cell.value === "number" && this.look.one) {
      context.fillStyle = ink.fill;
      const part = clamp(cell.value) * clamp(this.p * 1.2);
      context.fillRect(x, y + h * (1 - part), w, h * part);
    }
    if (cell.hatched && (!moving || this.p * 1.2 > cell.wave))
      this.drawHatch(context, x, y, w, h, ink, cell.hatched === "yes");
    if (lit) {
      context.fillStyle = ink.lit;
      context.fillRect(x, y, w, h);
    }
    if (box.cw > (lit ? 8 : 5)) {
      context.strokeStyle = lit ? ink["lit-rim"] : ink.rim;
      context.lineWidth = lit && box.cw > 10 ? 2 : 1;
      const inset = context.lineWidth / 2;
      context.strokeRect(x + inset, y + inset, Math.max(0.5, w - 2 * inset), Math.max(0.5, h - 2 * inset));
    }
    if (cell.value !== undefined && box.numbers && alpha > 0.5)
      this.drawNumber(context, box, cell, x, y, w, h, ink, lit);
    context.globalAlpha = 1;
  }

  drawNumber(context, box, cell, x, y, w, h, ink, lit) {
    const text = short(cell.value);
    context.font = this.font;
    const wide = context.measureText(text).width;
    if (wide > w - 2) context.font = `${Math.max(8, Math.floor((this.letter * (w - 2)) / wide))}px ${FAMILY}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    if (cell.hatched === "yes") {
      context.fillStyle = ink.cell;
      const back = Math.min(wide, w - 2) + 4;
      context.fillRect(x + (w - back) / 2, y + h / 2 - 8, back, 16);
    }
    context.fillStyle = lit ? ink["lit-rim"] : ink.ink;
    context.fillText(text, x + w / 2, y + h / 2 + 1);
  }

  /** Lines across an element: all of it where it is masked, one corner where it may be. */
  drawHatch(context, x, y, w, h, ink, whole) {
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.beginPath();
    context.strokeStyle = ink.soft;
    context.lineWidth = 1;
    const step = Math.max(3, Math.min(6, w / 3));
    const reach = whole ? w + h : Math.min(w, h) * 0.6;
    for (let at = step; at < reach; at += step) {
      context.moveTo(x, y + at);
      context.lineTo(x + at, y);
    }
    context.stroke();
    context.restore();
  }

  /** Dots where elements are left out. */
  drawBreaks(context, box, ink) {
    context.fillStyle = ink.soft;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = this.font;
    for (const [axes, across] of [
      [box.dirs.h, true],
      [box.dirs.v, false],
    ]) {
      for (const gap of axes.flatMap((axis) =>
        gaps(box.shown[axis], box.tensor.shape[axis], box.place.offsets[axis], inner(axis, axes, box.place)),
      )) {
        const middle = Math.min(across ? box.ch : box.cw, 16) / 2;
        if (across) context.fillText("…", box.margin + gap * box.cw, box.top + middle);
        else context.fillText("⋮", box.margin + middle, box.top + gap * box.ch);
      }
    }
  }

  /** Each row that now sums to 1, with a line along it and a sum at its end. */
  drawSums(context, box, ink) {
    const axis = this.turns?.axis;
    if (axis === undefined || this.p < 0.6) return;
    const across = box.dirs.h.includes(axis);
    if (!across || box.dirs.h.indexOf(axis) !== 0) return;
    context.globalAlpha = clamp((this.p - 0.6) / 0.3);
    context.strokeStyle = ink.ink;
    context.lineWidth = box.ch > 14 ? 2 : 1;
    const last = box.shown[axis].at(-1);
    const begin = box.shown[axis][0];
    const starts = new Map(
      box.cells.filter((cell) => cell.index[axis] === begin).map((cell) => [key(cell, axis), cell]),
    );
    for (const cell of box.cells) {
      if (cell.index[axis] !== last) continue;
      const start = starts.get(key(cell, axis));
      context.strokeRect(start.x, start.y, cell.x + box.cw - start.x - 1, box.ch - 1);
    }
    context.globalAlpha = 1;
  }

  // -------------------------------------------------------------- which elements make this one

  /** Let the pointer, or the arrow keys, choose an element of a result. */
  listen(boxes) {
    for (const box of boxes) {
      const { canvas, holder } = box;
      holder.tabIndex = 0;
      holder.setAttribute("role", "application");
      holder.setAttribute("aria-label", this.words.cells_of.replace("{name}", box.tensor.name || box.tensor.label));
      holder.dataset.lmSuppressShortcuts = "true";
      canvas.addEventListener("pointermove", (event) => this.light(box, box.cellAt(event.offsetX, event.offsetY)));
      canvas.addEventListener("pointerleave", () => this.light(box, null));
      holder.addEventListener("blur", () => this.light(box, null));
      holder.addEventListener("keydown", (event) => this.chooseByKey(event, box));
    }
  }

  /** Light an element and all that it is made from, and say which these are. */
  light(box, cell) {
    if ((this.lit?.cell ?? null) === cell) return;
    this.p = 1;
    cancelAnimationFrame(this.frame);
    this.lit = cell && { box, cell, reads: this.sourcesOf(box, cell) };
    this.cursor = cell ?? this.cursor;
    this.told.textContent = cell ? this.tell(box, cell) : "";
    this.draw();
  }

  sourcesOf(box, cell) {
    const all = this.look.reads?.[box.number] ?? [];
    return this.ins.map((input, n) => reads(all[n], cell.index, input.tensor.shape, box.tensor.shape));
  }

  tell(box, cell) {
    const name = (tensor, index, n) => {
      const inside = index.map((i) => (i === "all" ? ":" : i)).join(", ");
      return `${tensor.name || (n === undefined ? tensor.label : `${this.words.before} ${n + 1}`)}[${inside}]`;
    };
    const number = cell.value === undefined ? "" : ` = ${short(cell.value)}`;
    const whole = name(box.tensor, cell.index) + number;
    const parts = this.lit.reads.flatMap((found, n) => (found ? [this.part(n, found, name)] : []));
    return parts.length ? this.words.made_from.replace("{cell}", whole).replace("{parts}", parts.join(", ")) : whole;
  }

  /** Return what is read of one input, with its numbers where they are few. */
  part(n, found, name) {
    const box = this.ins[n];
    const cells = box.cells.filter((cell) => within(found, cell.index) && cell.value !== undefined);
    const numbers = cells.length && cells.length <= 8 ? ` = ${cells.map((cell) => short(cell.value)).join(" ")}` : "";
    return name(box.tensor, found, n) + numbers;
  }

  chooseByKey(event, box) {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (event.key === "Escape") {
      event.target.closest(".tracer-player").focus();
    } else if (step) {
      this.light(box, this.lit?.box === box ? next(box, this.lit.cell, step) : box.cells[0]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

const key = (cell, axis) => cell.index.filter((_, at) => at !== axis).join();

/** Return the nearest element in one direction; the same one at the border. */
function next(box, cell, [dx, dy]) {
  const beyond = box.cells.filter((one) =>
    dx
      ? Math.abs(one.y - cell.y) < 1 && (one.x - cell.x) * dx > 1
      : Math.abs(one.x - cell.x) < 1 && (one.y - cell.y) * dy > 1,
  );
  const far = (one) => Math.abs(one.x - cell.x) + Math.abs(one.y - cell.y);
  return beyond.reduce((best, one) => (best && far(best) <= far(one) ? best : one), null) ?? cell;
}
