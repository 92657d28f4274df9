"""What is said about axes and sizes before a run: by the `axes=` and `sizes=` arguments, by a model, by its config.

Reads models with `getattr` alone, and never trusts what it finds: an attribute that is no declaration is passed by.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from math import gcd
from types import FunctionType
from typing import Any, NamedTuple

import torch

from .errors import AxesError
from .naming import parse_axes

__all__ = ["Input", "axes_of", "bind", "checked", "default_axes", "has", "match_axes", "sizes_of"]


class Input(NamedTuple):
    """A tensor among the arguments of a call: the parameter it is bound to (`batch[0].x` inside containers)."""

    name: str
    tensor: torch.Tensor
    positional: bool


# ------------------------------------------------------------------ the arguments of a call


def bind(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Input]:
    """Return every tensor among the arguments of a call, under the names of the function's parameters."""
    names, rest = _parameters(function)
    found: list[Input] = []
    for i, value in enumerate(args):
        _add(found, names[i] if i < len(names) else f"{rest}[{i - len(names)}]", value, True)
    for name, value in kwargs.items():
        _add(found, name, value, False)
    return found


def _add(found: list[Input], name: str, value: Any, positional: bool) -> None:
    if isinstance(value, torch.Tensor):
        found.append(Input(name, value, positional))
    else:
        found += [Input(path, tensor, positional) for path, tensor in _tensors(name, value, 0)]


def _parameters(function: Any) -> tuple[Sequence[str], str]:
    """Return the names of a function's positional parameters, and the name of its `*args`."""
    method = getattr(function, "__self__", None) is not None
    inner = getattr(function, "__func__", function)
    if isinstance(inner, FunctionType) and not hasattr(inner, "__wrapped__") and not hasattr(inner, "__signature__"):
        code = inner.__code__
        last = code.co_argcount + code.co_kwonlyargcount
        rest = code.co_varnames[last] if code.co_flags & inspect.CO_VARARGS else "args"
        return code.co_varnames[method : code.co_argcount], rest
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function written in C may have no signature
        return (), "args"
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return named, next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")


def _tensors(path: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 8 or isinstance(value, str | bytes):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inner = f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
            yield from _tensors(path + inner, item, depth + 1)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from _tensors(f"{path}.{key}", item, depth + 1)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _tensors(f"{path}[{i}]", item, depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _tensors(f"{path}.{f.name}", getattr(value, f.name, None), depth + 1)


# ------------------------------------------------------------------ axes


def checked(text: Any, tensor: torch.Tensor, what: str) -> str:
    """Return an axes text that fits its tensor.

    Raises:
        AxesError: it is no text, cannot be read, or has another number of axes than the tensor.
    """
    if not isinstance(text, str):
        raise AxesError(f'axes for {what}: {text!r} is not a text. Write one name for each axis, such as "B T C".')
    try:
        named = _number_of_axes(text)
    except AxesError as error:
        raise AxesError(f"axes for {what}: {error}") from None
    rank = tensor.dim()
    if named != rank:
        shape = _shape(tensor)
        raise AxesError(
            f'axes for {what}: "{text}" names {_count(named, "axis", "axes")}, but {what} has shape {shape}. '
            f"Give {_count(rank, 'name', 'names')}; write ? for an axis without one."
        )
    return text


@lru_cache(1024)
def _number_of_axes(text: str) -> int:
    return len(parse_axes(text))


def match_axes(
    axes: Any, inputs: Sequence[Input], others: Mapping[str, torch.Tensor]
) -> list[tuple[torch.Tensor, str]]:
    """Pair what `axes=` says with the tensors it is about: the positional inputs in order, or any by name.

    `others` are the parameters and buffers of the traced model, which a dict may name too.

    Raises:
        AxesError: an unknown name, more texts than tensors, or a text that does not fit its tensor.
    """
    if isinstance(axes, str):
        axes = [axes]
    if isinstance(axes, Mapping):
        known = {**others, **{i.name: i.tensor for i in inputs}}
        for name in axes:
            if name not in known:
                raise AxesError(
                    f"axes= names {name!r}, and no tensor is passed under that name. Tensors of this call: "
                    f"{', '.join(i.name for i in inputs) or 'none'}."
                )
        return [(known[k], checked(v, known[k], k)) for k, v in axes.items() if v is not None]
    if not isinstance(axes, Sequence):
        raise AxesError(f'axes= is {axes!r}. Give a list of texts such as ["B T C"], or a dict by parameter name.')
    positional = [i for i in inputs if i.positional]
    if len(axes) > len(positional):
        raise AxesError(
            f"axes= has {_count(len(axes), 'text', 'texts')}, but the call has "
            f"{_count(len(positional), 'positional tensor', 'positional tensors')}"
            f"{''.join(f' {i.name} {_shape(i.tensor)}' for i in positional)}. "
            "Give one text for each, or a dict by name."
        )
    pairs = zip(positional, axes, strict=False)
    return [(i.tensor, checked(text, i.tensor, i.name)) for i, text in pairs if text is not None]


_IDS = frozenset(("input_ids", "ids", "idx", "tokens"))
_BY_NAME = {
    ("pixel_values", 4): "B R Y X",
    ("input_features", 3): "B ? ?",  # mel bands first, or frames first: models differ
    ("input_values", 2): "B ?",
    ("input_values", 3): "B ? ?",
}
"""Inputs that are no ids: (name, number of axes) -> axes, as models of images and of speech have them."""


def default_axes(inputs: Sequence[Input]) -> list[tuple[torch.Tensor, str]]:
    """Return what inputs have where nothing is said: ids `B T`, or `B S` beside a decoder's; images `B R Y X`."""
    named = [(i.tensor, text) for i in inputs if (text := _BY_NAME.get((_last(i.name), i.tensor.dim())))]
    return named + _axes_of_ids(inputs)


def _last(name: str) -> str:
    """Return `pixel_values` of `batch.pixel_values`."""
    return name.rpartition(".")[2]


def _axes_of_ids(inputs: Sequence[Input]) -> list[tuple[torch.Tensor, str]]:
    ids = [i for i in inputs if _rank_two_integers(i.tensor)]
    decoder = [i for i in ids if i.name.startswith(("decoder_", "tgt")) and i.name != "decoder_attention_mask"]
    rest = [i for i in ids if i not in decoder]
    first = next((i for i in rest if i.positional), None)
    chosen = [i for i in rest if _last(i.name) in _IDS or i is first]
    symbols = "B S" if decoder else "B T"
    return [(i.tensor, "B T") for i in decoder] + [(i.tensor, symbols) for i in chosen]


def _rank_two_integers(tensor: torch.Tensor) -> bool:
    kind = tensor.dtype
    return tensor.dim() == 2 and not (kind.is_floating_point or kind.is_complex or kind is torch.bool)


def axes_of(model: Any) -> dict[str, str]:
    """Return what a model declares in `model.axes`: text by the name of an input, a parameter or a buffer."""
    return {k: v for k, v in _mapping(model, "axes").items() if isinstance(k, str) and isinstance(v, str)}


# ------------------------------------------------------------------ sizes

_CONFIG_FIELDS = {
    "C": ("hidden_size", "n_embd", "d_model"),
    "H": ("num_attention_heads", "n_head", "num_heads"),
    "G": ("num_key_value_heads", "n_kv_head", "num_kv_heads"),
    "D": ("head_dim", "d_kv"),
    "M": ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "d_mlp"),
    "V": ("vocab_size",),
    "E": ("num_local_experts", "num_experts", "n_expert"),
    "K": ("num_experts_per_tok",),
    "L": ("num_hidden_layers", "n_layer"),
    "P": ("patch_size",),
    "R": ("num_channels",),
}
"""Size -> the fields of a config that hold it, in the words of Hugging Face and of GPT-2's code."""


def sizes_of(model: Any) -> dict[str, int]:
    """Return the sizes that a model declares in `model.sizes`, or that its `model.config` holds."""
    config, said = _attribute(model, "config"), _mapping(model, "sizes")
    found = {} if config is None else _sizes_of_config(config)
    for symbol, size in said.items():
        if isinstance(symbol, str) and type(size) is int and size > 0:
            found[symbol] = size
    return found


def _sizes_of_config(config: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for symbol, names in _CONFIG_FIELDS.items():
        for name in names:
            value = _attribute(config, name)
            if type(value) is int and value > 0:
                found.setdefault(symbol, value)
    if {"C", "H"} <= found.keys() and "D" not in found and found["C"] % found["H"] == 0:
        found["D"] = found["C"] // found["H"]
    if "G" in found and found["G"] == found.get("H"):
        del found["G"]  # one for each head: no groups
    if "G" not in found and _attribute(config, "multi_query") is True:
        found["G"] = 1
    if found.get("M") == found.get("C", 0) * (times := _attribute(config, "expand") or 0):
        found["M/C"] = times
    return {**found, **_rotary(config, found.get("D", 0))}


def _rotary(config: Any, size: int) -> dict[str, int]:
    """Return the parts of a head that rotary positions turn and leave, where a config says so: D/4 and 3D/4."""
    rope = _attribute(config, "rope_parameters")
    said = [_attribute(config, name) for name in ("partial_rotary_factor", "rotary_pct", "rotary_dim")]
    said.append(rope.get("partial_rotary_factor") if isinstance(rope, Mapping) else None)
    value = next((v for v in said if isinstance(v, int | float) and v > 0), 0)
    turned = value if isinstance(value, int) and value > 1 else int(size * value)
    if not 0 < turned < size:
        return {}
    found = {}
    for n in (turned, size - turned):
        common = gcd(n, size)
        found[f"{n // common if n > common else ''}D/{size // common}"] = n
    return found


def has(module: torch.nn.Module, name: str) -> bool:
    """Tell whether a module has an attribute of its own or of its class; far cheaper than asking for it."""
    return name in module.__dict__ or hasattr(type(module), name)


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, torch.nn.Module) and not has(owner, name):
        return None
    try:
        return getattr(owner, name, None)
    except Exception:  # a property of somebody else's model may raise anything; then it declares nothing
        return None


def _mapping(owner: Any, name: str) -> Mapping[Any, Any]:
    value = _attribute(owner, name)
    return value if isinstance(value, Mapping) else {}


def _shape(tensor: torch.Tensor) -> str:
    return "[" + ", ".join(map(str, tensor.shape)) + "]"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
