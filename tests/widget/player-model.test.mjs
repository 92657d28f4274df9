/** The parts of the player that need no page. Run by tests/test_player.py; by hand: see CONTRIBUTING.md. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as m from "./player-model.js";

const LINES = ["", "h.0", "h.0.attn", "h.0.attn", "h.0", "h.1", "h.1.attn", "h.1", "head"];
const lines = LINES.map((module, at) => ({ at, module, first: 2 * at, count: 2 }));
const nodes = m.outline(lines, [[5, 8, "h.1: as h.0"]]);

test("modules are nested groups, a fold is one of them", () => {
  const show = (node) => (node.children ? { [node.title]: node.children.map(show) } : node.line);
  assert.deepEqual(nodes.map(show), [
    0,
    { "h.0": [1, { "h.0.attn": [2, 3] }, 4] },
    { "h.1: as h.0": [{ "h.1": [5, { "h.1.attn": [6] }, 7] }] },
    { head: [8] },
  ]);
});

test("a walk over open groups stops at every operation, by line at the last one of each line", () => {
  const byOp = m.walk(nodes, new Set(), "op", lines);
  assert.deepEqual(
    byOp.stops.map((stop) => stop.op),
    Array.from({ length: 18 }, (_, op) => op),
  );
  const byLine = m.walk(nodes, new Set(), "line", lines);
  assert.deepEqual(
    byLine.stops.map((stop) => stop.op),
    [1, 3, 5, 7, 9, 11, 13, 15, 17],
  );
  assert.ok(byOp.stops.every((stop) => byOp.rows[stop.row].stop === byOp.stops.indexOf(stop)));
});

test("a closed group is one stop, and holds all of its operations", () => {
  const fold = nodes[2];
  const { rows, stops } = m.walk(nodes, new Set([fold.id]), "op", lines);
  const closed = stops.filter((stop) => stop.group);
  assert.deepEqual(
    closed.map(({ from, to, group }) => [from, to, group.title]),
    [[10, 16, "h.1: as h.0"]],
  );
  assert.equal(stops.length, 18 - 6 + 1);
  for (let op = 0; op < 18; op += 1) {
    const stop = stops[m.stopOf(stops, op)];
    assert.ok(stop.from <= op && op < stop.to, `operation ${op}`);
  }
  assert.equal(rows[closed[0].row].open, false);
  assert.deepEqual(
    m.around(nodes, 12, lines).map((node) => node.title),
    ["h.1: as h.0", "h.1", "h.1.attn"],
  );
});

test("places among siblings are counted for screen readers", () => {
  const { rows } = m.walk(nodes, new Set(), "line", lines);
  assert.deepEqual(
    rows.slice(0, 3).map(({ level, place, count }) => [level, place, count]),
    [
      [1, 1, 4],
      [1, 2, 4],
      [2, 1, 3],
    ],
  );
});

test("axes that hold the same elements", () => {
  assert.deepEqual(m.align([2, 5, 21], [2, 5, 3, 7]), [
    [[0], [0]],
    [[1], [1]],
    [[2], [2, 3]],
  ]);
  assert.deepEqual(m.align([2, 1, 8], [2, 8]), [
    [[0], [0]],
    [[1, 2], [1]],
  ]);
  assert.deepEqual(m.align([6], [2, 3, 1]), [
    [[0], [0, 1]],
    [[], [2]],
  ]);
  assert.deepEqual(m.align([4, 6], [3, 8]), [
    [
      [0, 1],
      [0, 1],
    ],
  ]);
  assert.equal(m.align([4], [5]), null);
});

test("a view keeps every element where it stands, but for gaps", () => {
  const look = { kind: "regroup", in: [0], out: [1], reads: [["flat"]] };
  for (const [a, b] of [
    [
      [2, 5, 21],
      [2, 5, 3, 7],
    ],
    [
      [2, 5, 3, 7],
      [2, 5, 21],
    ],
    [
      [6, 4],
      [6, 2, 2],
    ],
  ]) {
    const { ins, outs } = m.scene(look, [{ shape: a }, { shape: b }]);
    const spots = new Map();
    m.each(ins[0].shown, (i) => spots.set(m.ravel(i, a), m.spot(i, ins[0].shown, ins[0].dirs, ins[0].place.offsets)));
    const order = (list, way) => [...list].sort((x, y) => x[1][way] - y[1][way] || x[0] - y[0]).map(([flat]) => flat);
    const after = new Map();
    m.each(outs[0].shown, (i) =>
      after.set(m.ravel(i, b), m.spot(i, outs[0].shown, outs[0].dirs, outs[0].place.offsets)),
    );
    assert.equal(after.size, m.size(b));
    assert.deepEqual(order(after, 0), order(spots, 0));
    assert.deepEqual(order(after, 1), order(spots, 1));
  }
});

test("no two elements stand in one place, and all lie inside of the picture", () => {
  for (const shape of [[], [3], [2, 3], [2, 3, 5], [2, 3, 5, 7], [2, 2, 2, 3, 2], [1, 1, 4, 4]]) {
    const dirs = m.directions(shape);
    const shown = m.choose(shape, dirs, 64, 40);
    const { offsets, width, height } = m.place(shown, dirs, shape);
    const seen = new Set();
    m.each(shown, (index) => {
      const [x, y] = m.spot(index, shown, dirs, offsets);
      assert.ok(x >= 0 && y >= 0 && x + 1 <= width + 1e-9 && y + 1 <= height + 1e-9);
      seen.add(`${x.toFixed(3)} ${y.toFixed(3)}`);
    });
    assert.equal(seen.size, m.size(shown.map((list) => list.length)));
  }
});

test("of a large tensor few elements are drawn, and the gaps are marked", () => {
  const shape = [1, 96, 2048, 12288];
  const dirs = m.directions(shape);
  const shown = m.choose(shape, dirs, 64, 40);
  assert.ok(m.size(shown.map((list) => list.length)) <= 1600);
  assert.deepEqual(
    shown.map((list) => list.at(-1)),
    [0, 95, 2047, 12287],
  );
  const { offsets } = m.place(shown, dirs, shape);
  assert.equal(m.gaps(shown[3], shape[3], offsets[3], 1).length, 1);
  assert.deepEqual(m.gaps([0, 1], 2, [0, 1], 1), []);
  assert.deepEqual(m.gaps([1, 2], 4, [0.9, 1.9], 1).length, 2);
});

test("what an element is made of", () => {
  assert.deepEqual(m.reads("flat", [1, 2, 3], [2, 12], [2, 3, 4]), [1, 11]);
  assert.deepEqual(m.reads([0, "all"], [1, 2], [2, 5], [2, 3]), [1, "all"]);
  assert.deepEqual(m.reads([0, 1], [4, 2], [1, 3], [5, 3]), [0, 2]);
  assert.deepEqual(m.reads([[0, 3]], [4], [2], [5]), [1]);
  assert.equal(m.reads([[0, 3]], [2], [2], [5]), null);
  assert.equal(m.reads(null, [0], [1], [1]), null);
  assert.ok(m.within([1, "all"], [1, 4]) && !m.within([1, "all"], [0, 4]) && !m.within(null, [0]));
});

test("an input shows what the drawn results read, and contracted axes are cut alike", () => {
  const tensors = [{ shape: [700, 900] }, { shape: [900, 800] }, { shape: [700, 800] }];
  const look = {
    kind: "contract",
    in: [0, 1],
    out: [2],
    reads: [
      [
        [0, "all"],
        ["all", 1],
      ],
    ],
  };
  const { ins, outs } = m.scene(look, tensors);
  assert.deepEqual(ins[0].shown[0], outs[0].shown[0]);
  assert.deepEqual(ins[1].shown[1], outs[0].shown[1]);
  assert.deepEqual(ins[0].shown[1], ins[1].shown[0]);
});

test("a cut shows each of its parts in the whole", () => {
  const tensors = [{ shape: [2, 300] }, { shape: [2, 100] }];
  const look = { kind: "cut", in: [0], out: [1, 1, 1], reads: [0, 100, 200].map((n) => [[0, [1, -n]]]) };
  const shown = m.scene(look, tensors).ins[0].shown[1];
  assert.ok([0, 99, 100, 199, 200, 299].every((i) => shown.includes(i)));
});

test("numbers are short", () => {
  const pairs = [
    [0.4013, ".401"],
    [-0.25, "−.25"],
    [1, "1"],
    [0, "0"],
    [12.345, "12.35"],
    [123.4, "123"],
    [1e-7, "1e−7"],
  ];
  for (const [value, text] of [...pairs, ["-inf", "−∞"], ["nan", "NaN"], [12345, "1e+4"]])
    assert.equal(m.short(value), text);
});

test("search finds names, results, modules and code", () => {
  const looks = [
    { name: "view", in: [], out: [0] },
    { name: "softmax", in: [], out: [1] },
  ];
  const trace = {
    tensors: [
      { name: "q", label: "[B, T]" },
      { name: "weights", label: "[T, T]" },
    ],
    lines: [{ source: [0, 1, "q = x.View(B, T)"] }, { source: null }],
    ops: [
      { at: 0, look: looks[0], module: "h.0", line: 0 },
      { at: 1, look: looks[1], module: "h.1.attn", line: 1 },
    ],
  };
  const found = (text) => m.search(trace, text).map((op) => op.at);
  assert.deepEqual(["WEIGHTS", "x.view", "attn", "h.", "[T, T]", " ", "none"].map(found), [
    [1],
    [0],
    [1],
    [0, 1],
    [1],
    [],
    [],
  ]);
});
