/**
 * The player: code, outline, pictures and the chain of shapes of a trace, step by step. Python packs the trace and writes
 * every text (tracer/render/player.py); this draws. Used twice: as an anywidget, and inside the page of `t.to_html()`.
 */

import { around, eachGroup, outline, search, stopOf, through, unpack, walk } from "./player-model.js";
import { coloured, make, Stage, symbols } from "./player-stage.js";

const ROW = 26; // pixels: every row of the outline is as high, so that only those in sight are made
const PAUSE = 1700; // milliseconds between two steps while it plays

const SIGNS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M11 3v10L4 8z",
  play: "M4 2v12l9-6z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  next: "M5 3v10l7-5z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
}; // drawn, since not every system has a font with these signs

function icon(name) {
  const make = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const [svg, path] = [make("svg"), make("path")];
  for (const [key, value] of [
    ["viewBox", "0 0 16 16"],
    ["width", 16],
    ["height", 16],
    ["aria-hidden", "true"],
  ])
    svg.setAttribute(key, value);
  path.setAttribute("d", SIGNS[name]);
  path.setAttribute("fill", "currentColor");
  svg.append(path);
  return svg;
}

const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

/** Keep keys typed here from JupyterLab's shortcuts. It asks the focused element itself before it asks those around it. */
function keepKeys(...nodes) {
  for (const node of nodes) node.dataset.lmSuppressShortcuts = "true";
}

class Player {
  constructor(root, data) {
    this.root = root;
    this.trace = unpack(data);
    this.words = data.words;
    this.nodes = outline(this.trace.lines, data.folds);
    this.closed = new Set();
    eachGroup(this.nodes, (node) => node.fold && this.closed.add(node.id));
    this.by = "op";
    this.speed = 1;
    this.timer = null;
    this.found = [];
    this.stage = new Stage(this.words, data.colours, this.trace.tensors);
    this.build();
    this.regroup(0);
  }

  // ---------------------------------------------------------------- the elements

  build() {
    const { root, words } = this;
    root.classList.add("tracer-player");
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", words.player);
    this.where = make("output", { class: "tp-where" });
    this.code = make("ol", { class: "tp-code", tabIndex: 0, "aria-label": words.code });
    this.codeTitle = make("div", { class: "tp-file" });
    this.tree = make("div", { class: "tp-tree", role: "tree", tabIndex: 0, "aria-label": words.outline });
    this.rowsNode = make("div", { class: "tp-rows", role: "presentation" });
    this.tree.append(this.rowsNode);
    this.says = make("p", { class: "tp-says", "aria-live": "polite" });
    this.memory = make("p", { class: "tp-memory" });
    this.chain = make("div", { class: "tp-chain", role: "group", "aria-label": words.chain });
    const picture = make(
      "section",
      { class: "tp-right", "aria-label": words.picture },
      this.says,
      this.memory,
      this.stage.node,
      this.chain,
    );
    const left = make("div", { class: "tp-left" }, this.codeTitle, this.code, this.tree);
    root.append(
      this.makeHead(),
      this.makeBar(),
      make("div", { class: "tp-main" }, left, picture),
      make("p", { class: "tp-keys" }, words.keys),
    );
    keepKeys(root, ...root.querySelectorAll("button, input, select, [tabindex]"));
    this.listen();
  }

  makeHead() {
    const parts = this.trace.head.map((text) =>
      make("span", {}, ...(text.includes(" = ") ? symbols(text, this.trace.colours) : [text])),
    );
    const head = make("div", { class: "tp-head" }, ...parts);
    if (!this.trace.warnings.length) return head;
    const items = this.trace.warnings.map((text) => make("li", {}, text));
    return make(
      "div",
      {},
      head,
      make("div", { class: "tp-warn", role: "note" }, make("b", {}, this.words.warnings), make("ul", {}, ...items)),
    );
  }

  makeBar() {
    const { words } = this;
    const button = (sign, label, act) => {
      const node = make(
        "button",
        { type: "button", title: label, "aria-label": label },
        SIGNS[sign] ? icon(sign) : sign,
      );
      node.addEventListener("click", act);
      return node;
    };
    const menu = (label, options, act) => {
      const select = make("select", {}, ...options.map(([value, text]) => make("option", { value }, text)));
      select.addEventListener("change", () => act(select.value));
      return [make("label", {}, `${label} `, select), select];
    };
    this.playButton = button("play", words.play, () => this.toggle());
    this.slider = make("input", {
      type: "range",
      min: 0,
      step: 1,
      value: 0,
      "aria-label": words.step.split("{")[0].trim(),
    });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value), false));
    const [byLabel, bySelect] = menu(
      words.by,
      [
        ["op", words.by_operation],
        ["line", words.by_line],
      ],
      (by) => this.setBy(by),
    );
    const speeds = ["0.5", "1", "2", "4"].map((n) => [n, fill(words.times, { n })]);
    const [speedLabel, speedSelect] = menu(words.speed, speeds, (n) => this.setSpeed(Number(n)));
    speedSelect.value = "1";
    this.bySelect = bySelect;
    this.field = make("input", {
      type: "search",
      placeholder: words.search,
      title: words.search_hint,
      "aria-label": words.search,
    });
    this.field.addEventListener("input", () => this.look());
    this.hits = make("output", { class: "tp-hits" });
    this.foldButton = button(words.fold, words.fold, () => this.foldAll());
    return make(
      "div",
      { class: "tp-bar", role: "toolbar", "aria-label": words.player },
      make(
        "span",
        { class: "tp-group" },
        button("first", words.first, () => this.go(0)),
        button("back", words.back, () => this.move(-1)),
        this.playButton,
        button("next", words.next, () => this.move(1)),
        button("last", words.last, () => this.go(this.stops.length - 1)),
      ),
      this.where,
      this.slider,
      make("span", { class: "tp-group" }, byLabel, speedLabel),
      make("span", { class: "tp-group tp-search" }, this.field, this.hits),
      this.foldButton,
    );
  }

  listen() {
    const { root } = this;
    root.addEventListener("keydown", (event) => this.onKey(event));
    this.tree.addEventListener("scroll", () => this.drawRows(), { passive: true });
    this.tree.addEventListener("click", (event) => this.onRow(event));
    this.code.addEventListener("click", (event) => this.onLine(event));
    this.chain.addEventListener("click", (event) => {
      const at = event.target.closest("button")?.dataset.op;
      if (at !== undefined) this.goToOp(Number(at));
    });
    this.themes = [matchMedia("(prefers-color-scheme: dark)")];
    this.redraw = () => this.stage.draw();
    for (const theme of this.themes) theme.addEventListener("change", this.redraw);
    this.watch = new MutationObserver(this.redraw);
    this.watch.observe(document.body, {
      attributes: true,
      attributeFilter: ["data-jp-theme-light", "class", "data-theme"],
    });
    let width = 0;
    this.resize = new ResizeObserver(() => {
      const now = this.stage.width();
      if (Math.abs(now - width) < 2) return;
      width = now;
      this.show(false);
      this.drawRows();
    });
    this.resize.observe(this.stage.node);
  }

  close() {
    this.pause();
    for (const theme of this.themes) theme.removeEventListener("change", this.redraw);
    this.watch.disconnect();
    this.resize.disconnect();
  }

  // ---------------------------------------------------------------- going on

  /** Work out rows and stops anew, and stay at an operation. */
  regroup(op) {
    Object.assign(this, walk(this.nodes, this.closed, this.by, this.trace.lines));
    this.slider.max = this.stops.length - 1;
    this.rowsNode.style.height = `${this.rows.length * ROW}px`;
    this.drawn = null;
    this.foldButton.textContent = this.closed.size ? this.words.unfold : this.words.fold;
    this.foldButton.title = this.foldButton.textContent;
    this.foldButton.setAttribute("aria-label", this.foldButton.textContent);
    if (this.stops.length) this.go(stopOf(this.stops, op), false);
  }

  get stop() {
    return this.stops[this.at];
  }

  go(at, moving = true) {
    if (!this.stops.length) return;
    this.at = Math.min(this.stops.length - 1, Math.max(0, at));
    this.show(moving);
  }

  move(by) {
    this.go(this.at + by, by > 0);
  }

  /** Go to an operation; the folds around it open. */
  goToOp(op) {
    const folded = around(this.nodes, op, this.trace.lines).filter((node) => this.closed.has(node.id));
    for (const node of folded) this.closed.delete(node.id);
    if (folded.length) this.regroup(op);
    this.go(stopOf(this.stops, op));
  }

  setBy(by) {
    this.by = by;
    this.bySelect.value = by;
    this.regroup(this.stop.op);
  }

  setSpeed(speed) {
    this.speed = this.stage.speed = speed;
    if (this.timer !== null) {
      this.pause();
      this.play();
    }
  }

  toggle() {
    if (this.timer === null) this.play();
    else this.pause();
  }

  play() {
    if (this.at === this.stops.length - 1) this.go(0);
    this.says.setAttribute("aria-live", "off");
    this.timer = setInterval(() => {
      if (this.at === this.stops.length - 1) this.pause();
      else this.move(1);
    }, PAUSE / this.speed);
    this.sign("pause", this.words.pause);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.says.setAttribute("aria-live", "polite");
    this.sign("play", this.words.play);
  }

  sign(text, label) {
    this.playButton.replaceChildren(icon(text));
    this.playButton.title = label;
    this.playButton.setAttribute("aria-label", label);
  }

  // ---------------------------------------------------------------- folding and searching

  /** Open a closed group, or close an open one and stand on it. */
  turn(node) {
    const opened = this.closed.delete(node.id);
    if (!opened) this.closed.add(node.id);
    const first = this.trace.lines[node.from].first;
    this.regroup(opened || this.stop.from < first ? Math.max(first, opened ? first : this.stop.op) : this.stop.op);
  }

  /** Close the innermost group around the step; open the one that the step is. */
  foldHere() {
    if (this.stop.group) return this.turn(this.stop.group);
    const groups = around(this.nodes, this.stop.op, this.trace.lines);
    if (groups.length) this.turn(groups.at(-1));
  }

  foldAll() {
    const { op } = this.stop;
    if (this.closed.size) this.closed.clear();
    else eachGroup(this.nodes, (node) => this.closed.add(node.id));
    this.regroup(op);
  }

  look() {
    this.found = search(this.trace, this.field.value);
    if (this.found.length) this.hit(this.found.find((op) => op.at >= this.stop.from) ?? this.found[0]);
    else this.hits.textContent = this.field.value.trim() ? this.words.nothing : "";
    this.drawn = null;
    this.drawRows();
  }

  hit(op) {
    this.goToOp(op.at);
    this.hits.textContent = fill(this.words.found, { n: this.found.indexOf(op) + 1, count: this.found.length });
  }

  nextHit(by) {
    if (!this.found.length) return;
    const at =
      by > 0 ? this.found.find((op) => op.at > this.stop.op) : this.found.findLast((op) => op.at < this.stop.from);
    this.hit(at ?? this.found.at(by > 0 ? 0 : -1));
  }

  // ---------------------------------------------------------------- keys and clicks

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inField = event.target.matches("input, select");
    if (inField && event.target === this.field && event.key === "Enter") this.nextHit(event.shiftKey ? -1 : 1);
    else if (inField && event.key === "Escape") this.root.focus();
    else if (inField || !this.act(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Do what a key asks for; false where it asks for nothing here. */
  act(event) {
    const onButton = event.target.matches("button");
    const onTree = event.target === this.tree;
    switch (event.key) {
      case "ArrowRight":
        this.move(1);
        return true;
      case "ArrowLeft":
        this.move(-1);
        return true;
      case "ArrowDown":
        if (onTree) this.move(1);
        return onTree;
      case "ArrowUp":
        if (onTree) this.move(-1);
        return onTree;
      case "Home":
        this.go(0);
        return true;
      case "End":
        this.go(this.stops.length - 1);
        return true;
      case "Enter":
        if (onTree) this.foldHere();
        return onTree;
      case " ":
        if (!onButton) this.toggle();
        return !onButton;
      case "f":
      case "F":
        this.foldHere();
        return true;
      case "l":
      case "L":
        this.setBy(this.by === "op" ? "line" : "op");
        return true;
      case "/":
        this.field.focus();
        return true;
      default:
        return false;
    }
  }

  onRow(event) {
    const at = event.target.closest("[data-row]")?.dataset.row;
    if (at === undefined) return;
    const row = this.rows[at];
    if (row.node && (row.open || event.target.closest(".tp-turn"))) this.turn(row.node);
    else this.go(row.stop);
  }

  /** Go to the next time that a line ran. */
  onLine(event) {
    const number = Number(event.target.closest("li")?.dataset.line);
    const ran = this.trace.lines.filter(
      (line) => line.source && line.source[0] === this.listing && line.source[1] === number,
    );
    if (!ran.length) return;
    const now = this.trace.ops[this.stop.op].line;
    const line = ran.find((one) => one.at > now) ?? ran[0];
    this.goToOp(this.by === "line" ? line.first + line.count - 1 : line.first);
  }

  // ---------------------------------------------------------------- showing

  show(moving) {
    if (!this.stop) return;
    const op = this.trace.ops[this.stop.op];
    const line = this.trace.lines[op.line];
    const group = this.stop.group;
    const count = { n: this.at + 1, count: this.stops.length };
    this.where.textContent = `${count.n} / ${count.count}`;
    this.slider.value = this.at;
    this.slider.setAttribute("aria-valuetext", fill(this.words.step, count));
    this.root.dataset.op = this.stop.op;
    this.showCode(line);
    this.showTree();
    if (group) this.showGroup(group);
    else this.showStep(op, line, moving);
  }

  showStep(op, line, moving) {
    const ops = this.by === "line" ? this.trace.ops.slice(this.stop.from, this.stop.to) : [op];
    const texts = ops.map((one) => make("span", {}, ...coloured(one.look.says, this.trace.colours)));
    this.says.replaceChildren(...texts);
    this.memory.replaceChildren(...coloured(op.look.memory, this.trace.colours));
    this.stage.show(op.look, moving);
    this.showChain(line, op);
  }

  /** A folded group: what goes in and what comes out, as one step. */
  showGroup(node) {
    const { trace, words } = this;
    const made = through(trace, this.stop.from, this.stop.to);
    this.says.textContent = fill(words.folded, { note: node.title });
    this.memory.textContent = "";
    this.stage.show({ ...made, name: "⋯", kind: "other", reads: [] }, false);
    this.chain.replaceChildren();
  }

  showCode(line) {
    const source = line.source;
    const listing = source && source[0] >= 0 ? this.trace.listings[source[0]] : null;
    this.codeTitle.textContent = [line.module || this.words.top, source?.[3]].filter(Boolean).join("  ");
    const shown = source ? source[0] : null;
    if (this.listing !== shown || !this.codeNodes) {
      this.listing = shown;
      this.codeNodes = new Map();
      const ran = new Set(this.trace.lines.filter((one) => one.source?.[0] === shown).map((one) => one.source[1]));
      const [, , numbers, texts] = listing ?? ["", "", source ? [source[1]] : [], source ? [source[2]] : []];
      this.code.replaceChildren(
        ...numbers.map((number, k) =>
          this.codeLine(number, texts[k], ran.has(number), k && numbers[k - 1] + 1 < number),
        ),
      );
      if (!numbers.length) this.code.replaceChildren(make("li", {}, this.words.no_code));
    }
    this.codeNodes.get(this.lineNow)?.removeAttribute("aria-current");
    this.lineNow = source?.[1];
    const node = this.codeNodes.get(this.lineNow);
    if (!node) return;
    node.setAttribute("aria-current", "step");
    scrollTo(this.code, node.offsetTop, node.offsetHeight);
  }

  codeLine(number, text, ran, gap) {
    const node = make("li", { class: `${ran ? "tp-ran" : ""}${gap ? " tp-gap" : ""}`, "data-line": number });
    node.append(
      make("span", { class: "tp-number", "aria-hidden": "true" }, String(number)),
      make("code", {}, text || " "),
    );
    this.codeNodes.set(number, node);
    return node;
  }

  showChain(line, op) {
    const { colours } = this.trace;
    const parts = line.row.chains.map(([start, steps, inner, apart]) => {
      const nodes = steps.map(([at, text]) => {
        const current = line.first + at === op.at;
        const button = make("button", { type: "button", "data-op": line.first + at }, ...coloured(text, colours));
        if (current) button.setAttribute("aria-current", "step");
        keepKeys(button);
        return button;
      });
      const note = apart ? [make("small", {}, ...coloured(apart, colours))] : [];
      return make(
        "div",
        { class: inner ? "tp-run tp-inner" : "tp-run" },
        make("span", {}, ...coloured(start, colours)),
        ...nodes,
        ...note,
      );
    });
    this.chain.replaceChildren(...parts);
  }

  // ---------------------------------------------------------------- the outline: only the rows in sight are made

  showTree() {
    const top = this.stop.row * ROW;
    scrollTo(this.tree, top, ROW);
    this.drawn = null;
    this.drawRows();
    const current = this.rowsNode.querySelector("[aria-selected=true]");
    if (current) this.tree.setAttribute("aria-activedescendant", current.id);
  }

  drawRows() {
    const from = Math.max(0, Math.floor(this.tree.scrollTop / ROW) - 4);
    const to = Math.min(this.rows.length, from + Math.ceil((this.tree.clientHeight || 300) / ROW) + 8);
    const drawn = `${from} ${to} ${this.stop?.row}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const hits = new Set(this.found.map((op) => op.at));
    this.rowsNode.replaceChildren(...this.rows.slice(from, to).map((row, k) => this.makeRow(row, from + k, hits)));
  }

  makeRow(row, at, hits) {
    const node = make("div", {
      class: "tp-row-item",
      id: `${this.id}-${at}`,
      role: "treeitem",
      "data-row": at,
      "aria-level": row.level,
      "aria-posinset": row.place,
      "aria-setsize": row.count,
      "aria-selected": String(this.stop?.row === at),
    });
    node.style.top = `${at * ROW}px`;
    node.style.paddingLeft = `${8 + 12 * (row.level - 1)}px`;
    if (row.node) {
      node.setAttribute("aria-expanded", String(row.open));
      node.append(
        make("span", { class: "tp-turn", "aria-hidden": "true" }, row.open ? "▾ " : "▸ "),
        make("b", {}, row.node.title),
      );
    } else {
      node.append(...this.leaf(row));
      const line = this.trace.lines[row.line];
      const [first, last] = row.op === undefined ? [line.first, line.first + line.count - 1] : [row.op, row.op];
      let hit = false;
      for (let op = first; op <= last; op += 1) hit ||= hits.has(op);
      if (hit) node.classList.add("tp-hit");
    }
    node.title = node.textContent;
    return node;
  }

  leaf(row) {
    const { trace } = this;
    if (row.op === undefined) return [make("code", {}, trace.lines[row.line].source?.[2] ?? this.words.no_code)];
    const { look } = trace.ops[row.op];
    const out = look.out.map((id) => trace.tensors[id]);
    const name = out[0]?.name ? `${out[0].name}: ` : "";
    return [`${name}${look.name} `, ...coloured(out[0]?.label ?? "", trace.colours)];
  }

  id = `tp-${Math.random().toString(36).slice(2)}`;
}

/** Scroll a box, and nothing around it, so that a stretch of it is in sight. */
function scrollTo(box, top, height) {
  const seen = box.clientHeight;
  if (top < box.scrollTop + 8 || top + height > box.scrollTop + seen - 8)
    box.scrollTop = top - Math.max(0, (seen - height) / 3);
}

/** Put a player into an element of a page; keys work there wherever nothing else has the focus. */
export function mount(root, data) {
  const player = new Player(root, data);
  document.addEventListener("keydown", (event) => {
    if (event.target === document.body) player.onKey({ ...wrapped(event), target: root });
  });
  return player;
}

function wrapped(event) {
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  return {
    key,
    ctrlKey,
    metaKey,
    altKey,
    shiftKey,
    preventDefault: () => event.preventDefault(),
    stopPropagation() {},
  };
}

function render({ model, el }) {
  const data = model.get("trace");
  const root = make("div");
  el.append(make("style", {}, `.${data.still} { display: none }`), root); // the still copy is for pages without scripts
  keepKeys(el);
  const player = new Player(root, data);
  return () => player.close();
}

export default { render };
