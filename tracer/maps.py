"""Attention maps of any model: `attention_maps` runs it once and keeps the weights that were multiplied with values.

`looks` finds the weights, `render.heat` and `render.heatfigure` draw them. While the model runs only those weights are
held, and softmax results of which no product has come yet; no other tensor is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from math import prod
from types import FrameType
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .calls import call_of
from .engine import follow, new_recorder
from .errors import TracerError
from .ledger import DisableTorchFunction, Entry
from .looks import Follower, Look, Seen
from .opened import BOXES
from .recorder import Frozen, GuestRecorder, only
from .records import Call, Op, Ref, TensorInfo
from .render import heat, heatfigure
from .result import Trace
from .speech import say, say_count

__all__ = ["AttentionMaps", "Beside", "Layer", "attention_maps"]

MOST_SHOWN = 24
"""Heads that are drawn unless others are picked."""
_FEATURES = frozenset("CDEGHKMV")
"""Axes that are no positions: a softmax over one of them chooses, it does not look."""
Tokens = Sequence[str] | Mapping[str, Sequence[str]] | None


def attention_maps(
    model_or_trace: Any,
    /,
    *inputs: Any,
    tokens: Tokens = None,
    axes: Sequence[str] | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> "AttentionMaps":
    """Run a model once and return the weights of all its attention, by layer and head.

    Found is each softmax over the last axis whose result is multiplied with values: written out, in einops, or inside
    `scaled_dot_product_attention` and `nn.MultiheadAttention`, whose steps are computed once more for it. Weights are
    those that met the values, before dropout. A layer that is called once for each position (a recurrent decoder,
    generation with a cache) has one map with a row for each call.

    Args:
        model_or_trace: a module or callable, run with `inputs` and `kwargs` as in `tracer.trace`; or a Trace that was
            made with `keep_values=True`, which has the numbers of small tensors only.
        *inputs: its positional arguments.
        tokens: labels of the positions of the shown item; a dict by axis name (`{"T": [...], "S": [...]}`) where
            queries and keys are different sequences.
        axes: as in `tracer.trace`.
        sizes: as in `tracer.trace`.
        **kwargs: the model's other arguments.

    Raises:
        TracerError: no attention was found, or a trace does not hold its numbers.
        ValueError: `tokens` do not fit.

    Example:
        maps = tracer.attention_maps(model, ids, tokens=["the", "cat", "sat"])
        maps.weights["transformer.h.0.attn"][0, 2]  # [T, S] of head 2
        maps.pick(layers=[0], heads=[1, 2])  # in a notebook: two pictures
    """
    if isinstance(model_or_trace, Trace):
        if inputs or kwargs:
            raise TypeError(say("A trace has run already: attention_maps(trace) takes no inputs for a model."))
        trace, looks = model_or_trace, _look_back(model_or_trace)
    else:
        keeper = _keeper(sizes)
        trace = follow(keeper, model_or_trace, inputs, kwargs, axes)
        looks = keeper.follower.found
    layers = _layers(looks, trace)
    if not layers:
        reasons = [
            say("No attention was found: no softmax over a last axis is multiplied with values."),
            *trace.warnings,
        ]
        raise TracerError("\n".join(reasons))
    return AttentionMaps(tuple(layers), tokens, notes=trace.warnings)


# ------------------------------------------------------------------ what is returned


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one attention layer: `weights` `[B, H, T, S]`, `axes` their names, `heads` the heads' numbers.

    `closed` is True where a mask closed a key, of the same shape; None where nothing was masked.
    """

    name: str
    weights: Tensor
    closed: Tensor | None
    axes: tuple[str, str, str, str]
    heads: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMaps:
    """Attention weights by layer and head; printed it is text, in a notebook a picture without scripts.

    `item` is the member of the batch that is shown. `notes` is what the run had to say.
    """

    layers: tuple[Layer, ...]
    tokens: Tokens = None
    item: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for layer in self.layers:  # said when it is made, not when it is shown
            _labels(layer, self.tokens, 2)
            _labels(layer, self.tokens, 3)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Layer -> weights `[B, H, T, S]`, each row of which sums to 1 (0 where a query may see nothing)."""
        return {layer.name: layer.weights for layer in self.layers}

    @property
    def masked(self) -> dict[str, Tensor]:
        """Layer -> True where a mask closed the key, `[B, H, T, S]`; a weight of 0 there is none of the model's own."""
        return {layer.name: _or_nothing(layer) for layer in self.layers}

    @property
    def entropy(self) -> dict[str, Tensor]:
        """Layer -> entropy of each row in bits, `[B, H, T]`: 0 where one key has all, log2(S) where all have alike."""
        return {layer.name: _entropy(layer.weights) for layer in self.layers}

    @property
    def row_sums(self) -> dict[str, Tensor]:
        """Layer -> what the weights of each query sum to, `[B, H, T]`."""
        return {layer.name: layer.weights.sum(-1) for layer in self.layers}

    def pick(
        self,
        layers: int | str | Iterable[int | str] | None = None,
        heads: int | Iterable[int] | None = None,
        item: int | None = None,
    ) -> "AttentionMaps":
        """Return some of the maps: layers by number (from 0, or from -1 backwards) or name, heads by number.

        Raises:
            ValueError: there is no such layer, head or item.
        """
        chosen = self.layers if layers is None else [self._layer(x) for x in _several(layers)]
        if heads is not None:
            chosen = [_with_heads(layer, [int(h) for h in _several(heads)]) for layer in chosen]
        item = self.item if item is None else item
        for layer in chosen:
            if not 0 <= item < layer.weights.shape[0]:
                text = say("item is from 0 to {last}; {item} is outside.", last=layer.weights.shape[0] - 1, item=item)
                raise ValueError(text)
        return replace(self, layers=tuple(chosen), item=item)

    def _layer(self, which: int | str) -> Layer:
        names = [layer.name for layer in self.layers]
        if isinstance(which, str) and which in names:
            return self.layers[names.index(which)]
        if not isinstance(which, str) and -len(names) <= which < len(names):
            return self.layers[which]
        text = "There is no layer {which}. The layers, from 0 to {last}: {names}."
        raise ValueError(say(text, which=repr(which), last=len(names) - 1, names=", ".join(names)))

    def beside(self, other: "AttentionMaps", names: tuple[str, str] = ("first", "second")) -> "Beside":
        """Return the maps of two models side by side: layers in their order, heads by number."""
        return Beside(self, other, names)

    # ------------------------------------------------------------ showing

    def panels(self, note: str = "") -> list[list[heat.Panel]]:
        """Return what is to be drawn, plain lists by layer."""
        return [[_panel(layer, at, self, note) for at in range(len(layer.heads))] for layer in self.layers]

    def to_text(self) -> str:
        """Return each map as text, the weights as numbers where there are few positions."""
        parts = [heat.text(panel) for row in _first(self.panels()) for panel in row]
        return "\n\n".join([*filter(None, [self._left_out()]), *parts])

    __str__ = to_text

    def __repr__(self) -> str:
        heads = sum(len(layer.heads) for layer in self.layers)
        layers = say_count("{n} layer", "{n} layers", len(self.layers))
        return f"<AttentionMaps: {layers}, {say_count('{n} head', '{n} heads', heads)}>"

    def to_html(self) -> str:
        """Return the maps as one offline page."""
        return heat.page(self._repr_html_())

    def _repr_html_(self) -> str:
        rows = _first(self.panels())
        return heat.fragment(
            [(row[0].layer, [[panel] for panel in row]) for row in rows], [self._left_out(), *self.notes]
        )

    def figure(self, columns: int = 4) -> Figure:
        """Return the maps as a matplotlib figure, `columns` heads in a row; save it with `savefig`."""
        shown = [panel for row in _first(self.panels()) for panel in row]
        return heatfigure.figure(shown, columns)

    def _left_out(self) -> str:
        return _left_out(sum(len(layer.heads) for layer in self.layers))


@dataclass(frozen=True, eq=False, repr=False)
class Beside:
    """The maps of two models, head by head."""

    first: AttentionMaps
    second: AttentionMaps
    names: tuple[str, str]

    def pairs(self) -> list[tuple[str, list[list[heat.Panel]]]]:
        """Return for each layer its name, and for each head the panels of both, or of the one that has it."""
        sides = [maps.panels(name) for maps, name in zip((self.first, self.second), self.names, strict=True)]
        found = []
        for rows in zip_longest(*sides, fillvalue=[]):
            panels = [panel for row in rows for panel in row]
            titles = list(dict.fromkeys(panel.layer for panel in panels))
            heads = list(dict.fromkeys(panel.head for panel in panels))
            found.append((" | ".join(titles), [[p for p in panels if p.head == head] for head in heads]))
        return found

    def to_text(self) -> str:
        """Return both as text, head by head."""
        return "\n\n".join(heat.text(panel) for _, row in self._shown() for pair in row for panel in pair)

    __str__ = __repr__ = to_text

    def to_html(self) -> str:
        """Return both as one offline page."""
        return heat.page(self._repr_html_())

    def _repr_html_(self) -> str:
        count = sum(len(pair) for _, row in self.pairs() for pair in row)
        notes = [_left_out(count), *dict.fromkeys((*self.first.notes, *self.second.notes))]
        return heat.fragment(self._shown(), notes)

    def figure(self) -> Figure:
        """Return a matplotlib figure with two columns."""
        pairs = [pair for _, row in self._shown() for pair in row]
        return heatfigure.figure([panel for pair in pairs for panel in (*pair, None)[:2]], 2)

    def _shown(self) -> list[tuple[str, list[list[heat.Panel]]]]:
        pairs = self.pairs()
        rows = _first([row for _, row in pairs], MOST_SHOWN // 2)
        return [(name, row) for (name, _), row in zip(pairs, rows, strict=False)]


def _several(chosen: Any) -> list[Any]:
    return [chosen] if isinstance(chosen, int | str) else list(chosen)


def _with_heads(layer: Layer, heads: Sequence[int]) -> Layer:
    """Return a layer with some of its heads."""
    missing = [h for h in heads if h not in layer.heads]
    if missing or not heads:
        text = say("{name} has heads {all}; {which} is not among them.", name=layer.name,
                   all=", ".join(map(str, layer.heads)), which=missing[0] if missing else "-")  # fmt: skip
        raise ValueError(text)
    at = [layer.heads.index(h) for h in heads]
    closed = None if layer.closed is None else layer.closed[:, at]
    return replace(layer, weights=layer.weights[:, at], closed=closed, heads=tuple(heads))


def _first(rows: Sequence[list[Any]], most: int = MOST_SHOWN) -> list[list[Any]]:
    """Return the first panels or pairs, no more than are drawn at once."""
    left, found = most, []
    for row in rows:
        if left > 0:
            found.append(row[:left])
            left -= len(row)
    return found


def _left_out(count: int) -> str:
    if count <= MOST_SHOWN:
        return ""
    text = "The first {shown} of {count} heads are shown. Choose others: maps.pick(layers=[0, 1], heads=[0, 3])."
    return say(text, shown=MOST_SHOWN, count=count)


def _or_nothing(layer: Layer) -> Tensor:
    return torch.zeros_like(layer.weights, dtype=torch.bool) if layer.closed is None else layer.closed


def _entropy(weights: Tensor) -> Tensor:
    return -torch.xlogy(weights, weights).sum(-1) / torch.log(torch.tensor(2.0))


def _panel(layer: Layer, at: int, maps: AttentionMaps, note: str) -> heat.Panel:
    weights, closed = layer.weights[maps.item, at], _or_nothing(layer)[maps.item, at]
    return heat.Panel(
        layer=layer.name,
        head=layer.heads[at],
        note=note,
        axes=(layer.axes[2], layer.axes[3]),
        queries=tuple(_labels(layer, maps.tokens, 2)),
        keys=tuple(_labels(layer, maps.tokens, 3)),
        weights=tuple(tuple(row) for row in weights.tolist()),
        closed=tuple(tuple(row) for row in closed.tolist()),
        sums=tuple(weights.sum(-1).tolist()),
        entropy=float(_entropy(weights).mean()),
    )


def _labels(layer: Layer, tokens: Tokens, axis: int) -> list[str]:
    """Return the labels of the queries (axis 2) or the keys (axis 3); numbers where no tokens are given for them."""
    size, name = layer.weights.shape[axis], layer.axes[axis]
    if tokens is None or (isinstance(tokens, Mapping) and name not in tokens):
        return [str(i) for i in range(size)]
    if isinstance(tokens, str):
        raise ValueError(say("tokens is a list of labels, one for each position; this is one text."))
    labels = [str(t) for t in (tokens[name] if isinstance(tokens, Mapping) else tokens)]
    if len(labels) != size:
        text = (
            "{layer} has {size} positions along {name}, and {count} tokens were given. Where queries and keys differ, "
        )
        text += "give a dict by axis name: tokens={{{names}}}."
        names = ", ".join(f'"{n}": [...]' for n in dict.fromkeys(layer.axes[2:]))
        raise ValueError(say(text, layer=layer.name, size=size, name=name, count=len(labels), names=names))
    return labels


# ------------------------------------------------------------------ while the model runs


class _Keeper(GuestRecorder):
    """A recorder that tells a Follower of all operations, with their tensors."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(sizes, expand=True, keep_values=False)
        self.follower = Follower()

    def after(self, func: Any, call: Call, frozen: Frozen, inputs: list[Entry], out: Any, frame: FrameType) -> None:
        """As in Recorder."""
        number = len(self.events)
        super().after(func, call, frozen, inputs, out, frame)
        if len(self.events) == number:
            return
        try:
            if call.name in _INSIDE:
                self._open(call.name, frozen, inputs)
            else:
                with DisableTorchFunction(), torch.no_grad():
                    self._tell(call.name, frozen, inputs, out if isinstance(out, Tensor) else None)
        except Exception as error:
            self.lost(error)

    def _tell(self, name: str, frozen: Frozen, inputs: list[Entry], out: Tensor | None) -> None:
        args = [a for a in frozen[0] if type(a) is not Ref] + [f"{k}={v}" for k, v in frozen[1]]
        made = [self._seen(ref, out) for ref in self.events[-1][3]]
        self.follower.see(name, args, [self._seen(entry[1], entry[0]()) for entry in inputs], made)

    def _seen(self, ref: Ref, t: Tensor | None) -> Seen:
        fact = self.log.facts[ref.fact]
        return Seen(fact[0], tuple(fact[1]), None if t is None else t.detach())

    def _open(self, name: str, frozen: Frozen, inputs: list[Entry]) -> None:
        """Compute what is inside one call of attention once more, and keep its weights."""
        alive = {entry[1]: entry[0]() for entry in inputs}
        inside = _Inside()
        with only(inside), torch.no_grad():
            BOXES[name](*_filled(frozen[0], alive), **{k: _filled(v, alive) for k, v in frozen[1]})
        for look in inside.follower.found:
            weights = look.weights
            if weights is not None and name == "scaled_dot_product_attention":
                weights = weights.nan_to_num(0.0)  # the kernel gives zeros to a query that sees nothing
            product = self.log.facts[self.events[-1][3][0].fact][0]
            self.follower.found.append(look._replace(softmax=-1, product=product, weights=weights))


_INSIDE = frozenset(("scaled_dot_product_attention", "multi_head_attention_forward"))


class _Inside(TorchFunctionMode):
    """Follows the steps inside one call; leaves dropout out, which would draw random numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.follower = Follower()
        self.held: list[Tensor] = []
        """alive until the call is done: an id is used again"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = call_of(func)
        if call.name == "dropout":
            return args[0]
        out = func(*args, **(kwargs or {}))
        if not call.skip and isinstance(out, Tensor):
            self.held.append(out)
            plain = [a for a in args if not isinstance(a, Tensor)] + [f"{k}={v}" for k, v in (kwargs or {}).items()]
            tensors = [a for a in args if isinstance(a, Tensor)]
            self.follower.see(call.name, plain, [_by_id(t) for t in tensors], [_by_id(out)])
        return out


def _by_id(t: Tensor) -> Seen:
    return Seen(id(t), tuple(t.shape), t)


def _filled(value: Any, alive: Mapping[Ref, Tensor | None]) -> Any:
    """Return recorded arguments with the tensors themselves in the places of their Refs."""
    if type(value) is Ref:
        return alive[value]
    return tuple(_filled(v, alive) for v in value) if type(value) is tuple else value


def _keeper(sizes: Mapping[str, int] | None) -> _Keeper:
    return _Keeper(new_recorder(sizes, True, False).log.sizes)


# ------------------------------------------------------------------ from a finished trace


def _look_back(trace: Trace) -> list[Look]:
    """Find the weights of a trace that kept its numbers."""
    follower = Follower()
    for op in trace:
        follower.see(op.name, op.args, [_of_info(t) for t in op.inputs], [_of_info(t) for t in op.outputs])
    if any(look.weights is None for look in follower.found):
        raise TracerError(
            say(
                "This trace does not hold the numbers of its weights: keep_values=True keeps those of small tensors, "
                "and none inside a fused kernel. Give the model and its inputs: attention_maps(model, x)."
            )
        )
    return follower.found


def _of_info(info: TensorInfo) -> Seen:
    return Seen(info.id, info.shape, None if info.values is None else torch.tensor(info.values))


# ------------------------------------------------------------------ layers and heads


@dataclass(frozen=True)
class _Named:
    """Weights `[B, H, T, S]` with what the trace tells of them."""

    weights: Tensor
    closed: Tensor | None
    axes: tuple[str, str, str, str]
    module: str
    place: str


def _layers(looks: Sequence[Look], trace: Trace) -> list[Layer]:
    """Name what was found; calls for one position each become the rows of one map."""
    made = {out.id: (out, op) for op in trace for out in op.outputs}
    inside: dict[int | None, TensorInfo] = {
        op.parent: op.outputs[0] for op in trace if op.parent is not None and op.name == "softmax"
    }
    named = [n for n in (_named(look, made, inside, trace.sizes) for look in looks) if n is not None]
    order = list(dict.fromkeys((n.module, n.place) for n in named))
    named.sort(key=lambda n: order.index((n.module, n.place)))
    layers: list[Layer] = []
    modules = [module for module, _ in order]
    for (module, place), calls in groupby(named, key=lambda n: (n.module, n.place)):
        title = module or say("attention")
        if modules.count(module) > 1:
            title = f"{title} ({place})"
        several = _joined(list(calls))
        for i, one in enumerate(several):
            name = title if len(several) == 1 else f"{title} #{i + 1}"
            heads = tuple(range(one.weights.shape[1]))
            layers.append(Layer(name, one.weights, one.closed, one.axes, heads))
    return layers


def _named(
    look: Look,
    made: Mapping[int, tuple[TensorInfo, Op]],
    inside: Mapping[int | None, TensorInfo],
    sizes: Mapping[str, int],
) -> _Named | None:
    """Return weights with four axes and their names; None where the last is no axis of positions."""
    assert look.weights is not None
    _, op = made[look.product]
    info = inside.get(op.index) if look.softmax == -1 else made[look.softmax][0]
    weights, closed = look.weights, look.closed
    names = info.axes if info is not None and len(info.axes) == weights.dim() else ("?",) * weights.dim()
    if names[-1] in _FEATURES:
        return None
    alone = len(look.shape) > weights.dim() and look.shape[-2] == 1  # [B, S] met the values as [B, 1, S]
    if alone:
        weights, names = weights.unsqueeze(-2), (*names[:-1], "1", names[-1])
        closed = None if closed is None else closed.unsqueeze(-2)
    shape, axes = _four(tuple(weights.shape), names, sizes)
    closed = None if closed is None else closed.to("cpu").reshape(shape)
    place = "" if op.source is None else op.source.place
    return _Named(weights.reshape(shape), closed, axes, op.module, place)


def _four(
    shape: tuple[int, ...], names: tuple[str, ...], sizes: Mapping[str, int]
) -> tuple[tuple[int, int, int, int], tuple[str, str, str, str]]:
    """Return shape and names as batch, heads, queries and keys."""
    T, S = shape[-2:]
    t, s = names[-2:]
    before, words = shape[:-2], names[:-2]
    if len(before) == 1 and words[0].startswith("(") and " " in words[0]:  # heads and batch were one axis
        parts = [sizes.get(w, 0) for w in words[0].strip("()").split()]
        if len(parts) == 2 and prod(parts) == before[0]:
            before, words = (parts[0], parts[1]), tuple(words[0].strip("()").split())
    if len(before) < 2:
        is_batch = len(before) == 1 and words[0] == "B"
        before, words = (before[0] if is_batch else 1, before[0] if before and not is_batch else 1), (
            "B" if is_batch else "1",
            words[0] if before and not is_batch else "1",
        )  # fmt: skip
    B, H = prod(before[:-1]), before[-1]
    return (B, H, T, S), (" ".join(words[:-1]), words[-1], t, s)


def _joined(calls: list[_Named]) -> list[_Named]:
    """Join the calls of one line into one map where some are for a single position; else leave them."""
    alike = len({(n.weights.shape[0], n.weights.shape[1]) for n in calls}) == 1
    if len(calls) == 1 or not alike or all(n.weights.shape[2] > 1 for n in calls):
        return calls
    widest = max(n.weights.shape[3] for n in calls)
    rows = [_widened(n.weights, widest, 0.0) for n in calls]
    closed = [_widened(torch.zeros_like(n.weights, dtype=torch.bool) if n.closed is None else n.closed, widest, True)
              for n in calls]  # fmt: skip
    mask = torch.cat(closed, dim=2)
    *rest, _, last = calls[-1].axes
    axes = (rest[0], rest[1], "T", last)
    return [replace(calls[0], weights=torch.cat(rows, dim=2), closed=mask if bool(mask.any()) else None, axes=axes)]


def _widened(x: Tensor, width: int, fill: float | bool) -> Tensor:
    """Return [B, H, T, S] with as many keys as the longest call had: the others were not there yet."""
    return torch.nn.functional.pad(x, (0, width - x.shape[3]), value=fill)
