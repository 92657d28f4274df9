/**
 * What the player knows without a page: the trace unpacked, the outline and its stops, search, and where each element of
 * a tensor stands in its picture. Nothing here touches the document, so that node can test it.
 */

// ---------------------------------------------------------------- the trace

/** Return the packed trace as operations and lines; each knows where it stands. */
export function unpack(data) {
  const ops = [];
  const lines = [];
  for (let n = 0; n < data.lines.length; n += 3) {
    const [row, module, count] = data.lines.slice(n, n + 3);
    const line = { at: lines.length, row: data.rows[row], module: data.modules[module], first: ops.length, count };
    line.source = line.row.at < 0 ? null : data.sources[line.row.at];
    lines.push(line);
    for (let k = 0; k < count; k += 1) {
      const at = ops.length;
      const look = data.looks[data.run[2 * at]];
      const number = data.numbers ? data.numbers[at] : at;
      ops.push({ at, look, module: data.modules[data.run[2 * at + 1]], line: line.at, number });
    }
  }
  return { ...data, ops, lines };
}

/** Return a stretch of operations as one: what its first one takes (no parameters), and what its last one made. */
export function through(trace, from, to) {
  const isData = (id) => !trace.tensors[id].name.includes(".");
  return { in: trace.ops[from].look.in.filter(isData).slice(0, 1), out: trace.ops[to - 1].look.out.slice(0, 1) };
}

// ---------------------------------------------------------------- the outline

/** Return modules as nested groups over lines. A fold (`[from, to, note]`) is a group with a sentence for a title. */
export function outline(lines, folds) {
  const starts = new Map(folds.map(([from, to, note]) => [from, { to, note }]));
  let serial = 0;

  function within(from, to, depth) {
    const nodes = [];
    for (let at = from; at < to;) {
      const fold = starts.get(at);
      const parts = lines[at].module ? lines[at].module.split(".") : [];
      if (fold) {
        starts.delete(at);
        const node = { id: serial++, title: fold.note, fold: true, from: at, to: fold.to };
        nodes.push({ ...node, children: within(at, fold.to, depth) });
        at = fold.to;
      } else if (parts.length <= depth) {
        nodes.push({ line: at });
        at += 1;
      } else {
        const path = parts.slice(0, depth + 1).join(".");
        let end = at + 1;
        while (end < to && !starts.has(end) && `${lines[end].module}.`.startsWith(`${path}.`)) end += 1;
        const node = { id: serial++, title: path, fold: false, from: at, to: end };
        nodes.push(alone({ ...node, children: within(at, end, depth + 1) }));
        at = end;
      }
    }
    return nodes;
  }

  return within(0, lines.length, 0);
}

/** A module that holds nothing but another is shown as that other. */
function alone(node) {
  const [child] = node.children;
  return node.children.length === 1 && child.children && !child.fold ? child : node;
}

/** Call `visit` for each group of an outline. */
export function eachGroup(nodes, visit) {
  for (const node of nodes) {
    if (!node.children) continue;
    visit(node);
    eachGroup(node.children, visit);
  }
}

/**
 * Return the rows that show, and the stops among them, in order. A closed group is one stop; `by` is "op" or "line".
 * A stop has `from` and `to` (operations), `op` (the one that is drawn) and `row`.
 */
export function walk(nodes, closed, by, lines) {
  const rows = [];
  const stops = [];
  const leaf = (row, from, to) => {
    row.stop = stops.length;
    stops.push({ from, to, op: to - 1, row: rows.length, group: row.node ?? null });
    rows.push(row);
  };
  const end = (line) => lines[line].first + lines[line].count;

  function visit(list, level) {
    const units = list.flatMap((node) => {
      if (node.children || by === "line") return [node];
      return Array.from({ length: lines[node.line].count }, (_, k) => ({ op: lines[node.line].first + k, ...node }));
    });
    units.forEach((unit, place) => {
      const row = { level, place: place + 1, count: units.length };
      if (!unit.children) {
        const first = unit.op ?? lines[unit.line].first;
        leaf({ ...row, line: unit.line, op: unit.op }, first, unit.op === undefined ? end(unit.line) : first + 1);
      } else if (closed.has(unit.id)) {
        leaf({ ...row, node: unit, open: false }, lines[unit.from].first, end(unit.to - 1));
      } else {
        rows.push({ ...row, node: unit, open: true, stop: null });
        visit(unit.children, level + 1);
      }
    });
  }

  visit(nodes, 1);
  return { rows, stops };
}

/** Return the number of the stop that shows an operation. */
export function stopOf(stops, op) {
  let [low, high] = [0, stops.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stops[middle].to > op) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return the groups around an operation, from the outermost in. */
export function around(nodes, op, lines) {
  const line = lines.findLast((one) => one.first <= op)?.at ?? 0;
  const node = nodes.find((one) => one.children && one.from <= line && line < one.to);
  return node ? [node, ...around(node.children, op, lines)] : [];
}

/** Return the operations whose name, result, module or code has the text in it. */
export function search(trace, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const known = new Map();
  const tensors = (ids) => ids.map((id) => `${trace.tensors[id].name} ${trace.tensors[id].label}`).join(" ");
  return trace.ops.filter((op) => {
    const line = trace.lines[op.line];
    if (!known.has(op.look)) known.set(op.look, `${op.look.name} ${tensors(op.look.out)}`.toLowerCase());
    const code = line.source ? line.source[2].toLowerCase() : "";
    return [known.get(op.look), op.module.toLowerCase(), code].some((one) => one.includes(wanted));
  });
}

// ---------------------------------------------------------------- elements and their numbers

export const size = (shape) => shape.reduce((product, n) => product * n, 1);

/** Return the row-major number of an element. */
export const ravel = (index, shape) => index.reduce((flat, i, axis) => flat * shape[axis] + i, 0);

/** Return the element with a row-major number. */
export function unravel(flat, shape) {
  const index = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
    index[axis] = flat % shape[axis];
    flat = Math.floor(flat / shape[axis]);
  }
  return index;
}

/**
 * Return what an element of the result reads of one input: an entry for each of its axes, a number or "all"; null where
 * nothing is read, or it is not known.
 */
export function reads(read, index, shape, outShape) {
  if (read === null || read === undefined) return null;
  if (read === "flat") return unravel(ravel(index, outShape), shape);
  const found = read.map((entry, axis) => {
    if (entry === "all") return "all";
    const i = Array.isArray(entry) ? index[entry[0]] - entry[1] : shape[axis] === 1 ? 0 : index[entry];
    return i >= 0 && i < shape[axis] ? i : null;
  });
  return found.includes(null) ? null : found;
}

/** Say whether what `reads` returned has an element in it. */
export const within = (found, index) =>
  found !== null && found.every((one, axis) => one === "all" || one === index[axis]);

/** Return a number as it is shown in a cell: three digits, no zero before the point. */
export function short(value) {
  if (typeof value === "string") return { inf: "∞", "-inf": "−∞", nan: "NaN" }[value] ?? value;
  const text = Math.abs(value) >= 1000 || (value && Math.abs(value) < 0.001) ? value.toExponential(0) : null;
  return (text ?? String(Number(value.toFixed(Math.abs(value) < 1 ? 3 : Math.abs(value) < 100 ? 2 : 0))))
    .replace(/^(-?)0\./, "$1.")
    .replace("-", "−");
}

// ---------------------------------------------------------------- which elements are drawn, and where

const BREAK = 0.9; // cells of room where elements are left out
const MOST = 1600; // elements drawn of one tensor
const LONG = 64; // an axis longer than this is drawn with its first elements and the last: so many in all, and of outer axes
const SHORT = 12;
const OUTER = 4;

/**
 * Return which axes run to the right and which downwards, the innermost first: the last axis to the right, the one before
 * it downwards, each further one where there is less as yet.
 */
export function directions(shape) {
  const found = { h: [], v: [] };
  const extent = { h: 1, v: 1 };
  for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
    const turn = shape.length - 1 - axis;
    const way = turn < 2 ? "hv"[turn] : extent.h < extent.v ? "h" : "v";
    found[way].push(axis);
    extent[way] *= shape[axis];
  }
  return found;
}

/** Return directions for an input in which its outer axes run as those of the result that they follow. */
function alike(shape, read, outDirs) {
  const own = directions(shape);
  const way = (axis) => (outDirs.h.includes(read[axis]) ? "h" : outDirs.v.includes(read[axis]) ? "v" : null);
  const found = { h: own.h.slice(0, 1), v: own.v.slice(0, 1) };
  for (let axis = shape.length - 3; axis >= 0; axis -= 1)
    found[way(axis) ?? (own.h.includes(axis) ? "h" : "v")].push(axis);
  return found;
}

/** Return the axes of two shapes that hold the same elements, in groups of equal size; null where there are none. */
export function align(a, b) {
  const groups = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [ga, gb] = [[], []];
    let [pa, pb] = [1, 1];
    if (i < a.length) (ga.push(i), (pa = a[i++]));
    if (j < b.length) (gb.push(j), (pb = b[j++]));
    while (pa !== pb) {
      if (pa < pb && i < a.length) (ga.push(i), (pa *= a[i++]));
      else if (pb < pa && j < b.length) (gb.push(j), (pb *= b[j++]));
      else return null;
    }
    groups.push([ga, gb]);
  }
  return groups;
}

/** Return directions for `many` in which its elements stand where those of `few` do; null where an axis is cut across. */
export function inPlace(many, few) {
  const groups = align(many, few);
  if (!groups || groups.some(([, b]) => b.length > 1)) return null;
  const { h, v } = directions(few);
  const parts = (axis) => groups.find(([, b]) => b[0] === axis)[0].toReversed();
  const lone = groups.filter(([, b]) => b.length === 0).flatMap(([a]) => a);
  return { h: [...h.flatMap(parts), ...lone], v: v.flatMap(parts) };
}

/** Return `count` of the indices of an axis: all, or the first ones and the last. */
export function some(length, count) {
  const all = Array.from({ length: Math.min(length, count) }, (_, i) => i);
  if (count < length && count > 1) all[count - 1] = length - 1;
  return all;
}

/** Return which indices of each axis are drawn, so that the picture has at most so many columns and rows. */
export function choose(shape, dirs, columns, rows) {
  const counts = shape.map((n, axis) => (n <= LONG ? n : axis < shape.length - 2 ? OUTER : SHORT));
  const product = (axes) => axes.reduce((found, axis) => found * counts[axis], 1);
  const shrink = (axes, most) => {
    while (product(axes) > most) {
      const widest = axes.reduce((best, axis) => (counts[axis] > counts[best] ? axis : best), axes[0]);
      if (counts[widest] <= 2) return;
      counts[widest] = Math.max(2, Math.min(counts[widest] - 1, Math.floor(counts[widest] * 0.85)));
    }
  };
  shrink(dirs.h, columns);
  shrink(dirs.v, rows);
  shrink([...dirs.h, ...dirs.v], MOST);
  return shape.map((n, axis) => some(n, counts[axis]));
}

/** Call `visit` with each element that is drawn. */
export function each(shown, visit) {
  const index = new Array(shown.length);
  const turn = (axis) => {
    if (axis === shown.length) return void visit([...index]);
    for (const i of shown[axis]) {
      index[axis] = i;
      turn(axis + 1);
    }
  };
  turn(0);
}

/** Return which indices of another shape hold the same elements. */
function across(shown, shape, other) {
  const found = other.map(() => new Set());
  each(shown, (index) => unravel(ravel(index, shape), other).forEach((i, axis) => found[axis].add(i)));
  return found.map((set) => [...set].sort((a, b) => a - b));
}

/**
 * Return where each index that is drawn stands, in cells, for each axis (`offsets`), how far an axis reaches (`reach`), and
 * the width and height of the whole. Where indices are left out, there is a gap.
 */
export function place(shown, dirs, shape) {
  const offsets = shown.map(() => []);
  const reach = shown.map(() => 1);
  const along = (axes) => {
    let extent = 1;
    axes.forEach((axis, level) => {
      let at = shown[axis][0] > 0 ? BREAK : 0;
      offsets[axis] = shown[axis].map((index, k) => {
        if (k > 0) at += extent + (level && 0.25 + 0.35 * level) + (index === shown[axis][k - 1] + 1 ? 0 : BREAK);
        return at;
      });
      extent += at + (shown[axis].at(-1) < shape[axis] - 1 ? BREAK : 0);
      reach[axis] = extent;
    });
    return extent;
  };
  return { offsets, reach, width: along(dirs.h), height: along(dirs.v) };
}

/** Return the extent of what stands inside each step of an axis. */
export const inner = (axis, axes, { reach }) => (axes.indexOf(axis) > 0 ? reach[axes[axes.indexOf(axis) - 1]] : 1);

/** Return the middles of the gaps along an axis, in cells. */
export function gaps(shown, length, offsets, extent) {
  const found = shown[0] > 0 ? [offsets[0] - BREAK / 2] : [];
  shown.forEach((index, k) => k > 0 && index !== shown[k - 1] + 1 && found.push(offsets[k] - BREAK / 2));
  if (shown.at(-1) < length - 1) found.push(offsets.at(-1) + extent + BREAK / 2);
  return found;
}

/** Return the place of one element in cells; null where it is not drawn. */
export function spot(index, shown, dirs, offsets) {
  const sum = (axes) => axes.reduce((at, axis) => at + (offsets[axis][shown[axis].indexOf(index[axis])] ?? NaN), 0);
  const [x, y] = [sum(dirs.h), sum(dirs.v)];
  return Number.isNaN(x + y) ? null : [x, y];
}

/**
 * Return the pictures of one operation: for each tensor `shown`, `dirs`, and its `place`. What an element of the first
 * result reads is drawn where it can be; a view keeps every element in its place.
 */
export function scene(look, tensors, columns = 64, rows = 40) {
  const ins = look.in.map((id) => tensors[id]);
  const outs = look.out.map((id) => tensors[id]);
  const box = (tensor, dirs, shown) => ({ tensor, dirs, shown, place: place(shown, dirs, tensor.shape) });
  const own = (tensor, dirs = directions(tensor.shape)) => box(tensor, dirs, choose(tensor.shape, dirs, columns, rows));

  // 1. a regrouping: the side with more axes decides what is drawn, the other where it stands
  if (ins.length && outs.length && look.kind === "regroup" && look.reads[0][0] === "flat") {
    const [a, b] = [ins[0], outs[0]];
    const split = b.shape.length >= a.shape.length;
    const [many, few] = split ? [b, a] : [a, b];
    const dirs = inPlace(many.shape, few.shape) ?? directions(many.shape);
    const fine = own(many, dirs);
    const coarse = box(few, directions(few.shape), across(fine.shown, many.shape, few.shape));
    const pair = split ? [coarse, fine] : [fine, coarse];
    return {
      ins: [pair[0], ...ins.slice(1).map((one) => own(one))],
      outs: [pair[1], ...outs.slice(1).map((one) => own(one))],
    };
  }

  // 2. the results, then of each input what they read
  const made = outs.map((one) => own(one));
  const lengths = new Map(); // contracted axes of two inputs are cut alike
  const taken = ins.map((tensor, n) => {
    const read = (look.reads ?? []).map((one) => one[n]);
    if (!made.length || !read[0]) return own(tensor);
    const dirs = Array.isArray(read[0]) ? alike(tensor.shape, read[0], made[0].dirs) : directions(tensor.shape);
    const free = own(tensor, dirs).shown;
    const all = made.map((out, k) => readShown(read[k], out, tensor.shape, free, lengths));
    return box(
      tensor,
      dirs,
      tensor.shape.map((_, axis) => united(all.map((shown) => shown[axis]))),
    );
  });
  return { ins: taken, outs: made };
}

/** Return which indices of an input are read by the elements of a result that are drawn; `free` where none are told. */
function readShown(read, out, shape, free, lengths) {
  if (!read) return shape.map(() => []);
  if (read === "flat") return across(out.shown, out.tensor.shape, shape);
  return read.map((entry, axis) => {
    const length = shape[axis];
    if (entry === "all") {
      if (!lengths.has(length)) lengths.set(length, free[axis]);
      return lengths.get(length);
    }
    if (length === 1) return [0];
    if (!Array.isArray(entry)) return out.shown[entry];
    const moved = out.shown[entry[0]].map((i) => i - entry[1]).filter((i) => i >= 0 && i < length);
    return moved.length ? moved : free[axis];
  });
}

const united = (lists) => [...new Set(lists.flat())].sort((a, b) => a - b);
