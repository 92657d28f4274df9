"""Controls that rebuild a model, run it again and redraw its trace: `explore` and `Explorer`.

Every decision and every sentence is made here; `widget/explore.js` draws the controls and reports what was asked.
Making the picture is left to `Trace` (or to the function given as `show`), making the model to the `build` function.
"""

import html
import inspect
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import anywidget
import torch
import traitlets
from IPython.display import display

from .engine import trace
from .render.costs import short
from .result import Trace
from .speech import _, say

__all__ = ["Explorer", "explore"]

MEANINGS = {
    "B": _("batch"),
    "C": _("model width"),
    "D": _("head size"),
    "E": _("experts"),
    "G": _("key/value heads"),
    "H": _("heads"),
    "K": _("experts chosen per token"),
    "L": _("layers"),
    "M": _("hidden width of the MLP"),
    "S": _("positions of the key"),
    "T": _("positions"),
    "V": _("vocabulary"),
    "activation": _("bend of the MLP"),
    "causal": _("no look ahead"),
    "dropout": _("share set to zero while training"),
    "how": _("implementation"),
    "norm": _("where the norm stands"),
    "positions": _("how places are told"),
}
WIDGET = Path(__file__).parent / "widget"


def explore(build: Callable[..., Any], *, show: Callable[[Any], Any] | None = None, **choices: Any) -> "Explorer":
    """Show a model's trace under controls: each move rebuilds the model, runs it again and redraws.

    `build(**choices)` returns `(model, inputs)`; every argument of it can be a choice. A pair of integers is a range
    (`H=(1, 8)`, `T=(2, 64)`, `L=(1, 12)`), a list a menu (`norm=["pre", "post"]`, `how=["steps", "fused"]`), True or
    False a switch (`causal=True`). The first values are the defaults of `build`'s own parameters where it has them,
    else the low end, the first of the list, the switch as it is given. Where H and D are both ranges, C can move
    (C = H x D) or be held (D = C / H).
    `show(trace)` gives another picture: an object with `_repr_html_`, a matplotlib figure, or HTML as a string, used as
    it stands.

    Beside the picture stand the parameters, FLOPs, new and peak memory of the run and, for a model that can generate,
    the bytes of its cache, each against the setting before; what differs in the picture is marked.

    Raises ValueError for a choice of another kind. What `build` raises later is explained under the controls; the
    last good picture stays.
    """
    return Explorer(build, choices, show=show)


# ------------------------------------------------------------------ the choices


class _Impossible(ValueError):
    """A choice that makes no model; `names` are the controls to blame."""

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(message)
        self.names = names


@dataclass(frozen=True, slots=True)
class _Range:
    name: str
    low: int
    high: int

    def check(self, value: Any) -> int:
        """Return the value as an int; raise _Impossible outside the range."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            text = _("{name} is a whole number; {value} is not one.")
            raise _Impossible(text.format(name=self.name, value=value), self.name)
        if not self.low <= value <= self.high:
            text = _("{name} goes from {low} to {high} here; {value} is outside.")
            raise _Impossible(text.format(name=self.name, low=self.low, high=self.high, value=value), self.name)
        return int(value)

    def first(self, default: Any) -> int:
        return default if type(default) is int and self.low <= default <= self.high else self.low

    def clamp(self, value: int) -> int:
        return min(max(value, self.low), self.high)

    def form(self) -> dict[str, Any]:
        return {**_label(self.name), "kind": "range", "low": self.low, "high": self.high}

    def to_form(self, value: Any) -> Any:
        return value

    def from_form(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class _Menu:
    name: str
    options: tuple[Any, ...]

    def check(self, value: Any) -> Any:
        """Return the value; raise _Impossible when it is not among the options."""
        if value not in self.options:
            text = _("{name} can be {options}; {value} is not among them.")
            options = _either([_text(option) for option in self.options])
            raise _Impossible(text.format(name=self.name, options=options, value=_text(value)), self.name)
        return value

    def first(self, default: Any) -> Any:
        return default if default in self.options else self.options[0]

    def form(self) -> dict[str, Any]:
        return {**_label(self.name), "kind": "menu", "options": [_text(option) for option in self.options]}

    def to_form(self, value: Any) -> Any:
        return self.options.index(value) if value in self.options else 0

    def from_form(self, value: Any) -> Any:
        return self.options[value]


@dataclass(frozen=True, slots=True)
class _Switch:
    name: str
    start: bool

    def check(self, value: Any) -> bool:
        """Return the value; raise _Impossible when it is not True or False."""
        if not isinstance(value, bool):
            text = _("{name} is True or False; {value} is neither.")
            raise _Impossible(text.format(name=self.name, value=_text(value)), self.name)
        return value

    def first(self, default: Any) -> bool:
        return default if isinstance(default, bool) else self.start

    def form(self) -> dict[str, Any]:
        return {**_label(self.name), "kind": "switch"}

    def to_form(self, value: Any) -> Any:
        return value is True

    def from_form(self, value: Any) -> Any:
        return value


_Control = _Range | _Menu | _Switch


def _control(name: str, choice: Any) -> _Control:
    """Convert one keyword of `explore`: a pair of integers, a list, or a truth value."""
    if isinstance(choice, bool):
        return _Switch(name, choice)
    if isinstance(choice, list) and choice:
        return _Menu(name, tuple(choice))
    match choice:
        case (int(low), int(high)) if isinstance(choice, tuple) and bool not in map(type, choice) and low <= high:
            return _Range(name, low, high)
    text = _(
        "{name}={choice!r}: give a pair of integers, low end first, such as (1, 8), a list of choices, or True "
        "or False for a switch."
    )
    raise ValueError(text.format(name=name, choice=choice))


def _label(name: str) -> dict[str, str]:
    return {"name": name, "hint": MEANINGS.get(name, ""), "number": _("{name}, as a number").format(name=name)}


def _text(value: Any) -> str:
    return value.__name__ if callable(value) and hasattr(value, "__name__") else str(value)


def _either(words: list[str]) -> str:
    """Join words as `1, 2 or 4`."""
    *several, last = words
    return _("{several} or {last}").format(several=", ".join(several), last=last) if several else last


# ------------------------------------------------------------------ the explorer


class Explorer:
    """A model under controls; works without a browser too.

    `set(H=4)` rebuilds, re-runs and redraws. `choices` are the values of the picture, `trace` its Trace, `width` the
    held C or None, `parameters` the number of parameters (elements) or None. `message` says why the last choice was
    impossible, else it is empty. `changed` says where this run and the one before it part. `view` turns the trace into
    HTML; a new one shows at the next redraw.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        choices: Mapping[str, Any],
        *,
        show: Callable[[Any], Any] | None = None,
        _trace: Callable[..., Any] = trace,
    ) -> None:
        """Draw the first picture; `choices` is what `explore` takes as keywords."""
        if not choices:
            raise ValueError(_("explore needs at least one choice, such as H=(1, 8)."))
        self.view: Callable[[Any], str] = lambda trace: _html(show(trace) if show else trace)
        self.choices: dict[str, Any] = {}
        self.trace: Any = None
        self.parameters: int | None = None
        self.width: int | None = None
        self.message = self.changed = ""
        self._build, self._trace = build, _trace
        self._controls = {name: _control(name, choice) for name, choice in choices.items()}
        self._wanted = _first_values(build, self._controls)
        self._blamed: tuple[str, ...] = ()
        self._picture = ""
        self._counted: list[_Count] = []
        self._before: dict[str, int] = {}
        self._settle()
        self._panel = _Panel(form=self._form(), picture=self._picture, state=self._state())
        self._panel.observe(self._answer, "asked")

    def set(self, **values: Any) -> None:
        """Choose new values and redraw; a choice that makes no model changes only `message`.

        Raises ValueError for a name that is no choice.
        """
        unknown = sorted(values.keys() - self._controls.keys())
        if unknown:
            text = _("{name} is no choice here; the choices are {names}.")
            raise ValueError(text.format(name=unknown[0], names=", ".join(self._controls)))
        self._wanted |= values
        self._settle(dependent="D" in values)
        self._send()

    def hold(self) -> None:
        """Hold C at its present H x D: from now on D = C / H follows H. Raises ValueError without H and D as ranges."""
        self._switch(True)
        self._send()

    def release(self) -> None:
        """Let C move with H and D again."""
        self._switch(False)
        self._send()

    @property
    def status(self) -> str:
        """The picture's values in one line, such as `C = H x D = 3 x 16 = 48; norm = pre`."""
        values = self.choices
        if not values:
            return ""
        parts = [f"{name} = {_text(value)}" for name, value in values.items() if not (self._has_width and name in "HD")]
        if self._has_width:
            text = _("C is held at {C}: D = C / H = {C} / {H} = {D}") if self.width else "C = H x D = {H} x {D} = {C}"
            parts.insert(0, text.format(H=values["H"], D=values["D"], C=values["H"] * values["D"]))
        return "; ".join(parts)

    # -------------------------------------------------------------- choosing and drawing

    @property
    def _has_width(self) -> bool:
        return all(isinstance(self._controls.get(name), _Range) for name in "HD")

    def _settle(self, dependent: bool = False) -> None:
        """Draw what is wanted, or say why it cannot be; only an unforeseen error of the first picture is raised."""
        try:
            choices = self._resolve(dependent)
            new, picture, parameters, counted = self._draw(choices)
            changed = self.changed if choices == self.choices else _difference(self.trace, new)
        except Exception as error:
            if not self.choices and not isinstance(error, ValueError):
                raise
            self._blamed = error.names if isinstance(error, _Impossible) else ()
            self.message = self._explain(error)
        else:
            if choices != self.choices:
                self._before = {count.label: count.number for count in self._counted}
            self.trace, self._picture, self.parameters, self._counted = new, picture, parameters, counted
            self.choices, self._wanted, self.changed = choices, dict(choices), changed
            self.message, self._blamed = "", ()

    def _resolve(self, dependent: bool) -> dict[str, Any]:
        """Return the wanted values, checked, with D worked out where C is held."""
        if self.width is not None and dependent:
            raise _Impossible(_("While C is held, D follows from it: D = C / H. Move H, or let C move."), "D")
        held = {} if self.width is None else {"D": self._held_size(self.width)}
        free = {name: c.check(self._wanted[name]) for name, c in self._controls.items() if name not in held}
        return {name: held.get(name, free.get(name)) for name in self._controls}

    def _held_size(self, width: int) -> int:
        """Return D = C / H, or raise with the values of H that divide C."""
        heads = self._controls["H"]
        H = heads.check(self._wanted["H"])
        if width % H:
            assert isinstance(heads, _Range)
            divisors = [str(h) for h in range(max(heads.low, 1), heads.high + 1) if width % h == 0]
            text = _("C is held at {C}, and D = C / H = {C} / {H} is no whole number. H = {which} would do.")
            raise _Impossible(text.format(C=width, H=H, which=_either(divisors)), "H")
        return width // H

    def _draw(self, choices: dict[str, Any]) -> tuple[Any, str, int | None, "list[_Count]"]:
        """Build, run and render; nothing of the Explorer changes before all three have worked."""
        with _random_state_kept():
            made = self._build(**choices)
            if not (isinstance(made, tuple | list) and len(made) == 2):
                raise TypeError(_("build returns two things, the model and its inputs: return model, inputs."))
            model, inputs = made
            if isinstance(inputs, Mapping):
                new = self._trace(model, **inputs)
            else:
                new = self._trace(model, *(inputs if isinstance(inputs, tuple | list) else (inputs,)))
        parameters = sum(p.numel() for p in model.parameters()) if hasattr(model, "parameters") else None
        return new, self.view(new), parameters, _count(parameters, model, new)

    def _explain(self, error: Exception) -> str:
        """Say in words why there is no new picture, and which one is still shown."""
        what = str(error) or type(error).__name__
        if not isinstance(error, ValueError | RuntimeError):
            what = f"{type(error).__name__}: {what}"
        parts = [_("Not possible: {what}").format(what=what), *getattr(error, "__notes__", ())]
        if self.choices:
            shown = ", ".join(f"{name} = {_text(value)}" for name, value in self.choices.items())
            parts.append(_("The picture still shows {shown}.").format(shown=shown))
        return "\n".join(parts)

    def _switch(self, hold: bool) -> None:
        """Change the mode, starting from the picture's own values."""
        if not self._has_width:
            raise ValueError(_("C can be held only where H and D are both ranges."))
        if hold == (self.width is not None) or not self.choices:
            return
        self._wanted = dict(self.choices)
        self.width = self.choices["H"] * self.choices["D"] if hold else None
        size = self._controls["D"]
        if not hold and isinstance(size, _Range):
            self._wanted["D"] = size.clamp(self.choices["D"])
        if self._wanted != self.choices or self.message:
            self._settle()

    # -------------------------------------------------------------- showing

    def _form(self) -> dict[str, Any]:
        """The fixed part of the panel: controls and their texts."""
        modes = {
            "legend": _("What follows from H and D"),
            "free": _("C moves: C = H x D"),
            "held": _("C is held: D = C / H"),
        }
        return {
            "title": _("Choices"),
            "picture": _("Trace"),
            "marked": _("Marked in the picture: what differs from the setting before."),
            "silent": _(
                "No answer yet: the kernel is busy, or it was restarted. After a restart, run this cell again."
            ),
            "controls": [control.form() for control in self._controls.values()],
            "modes": modes if self._has_width else None,
            "still": f"tracer-still-{uuid.uuid4().hex}",
        }

    def _state(self, serial: int = 0) -> dict[str, Any]:
        """The moving part of the panel, as an answer to the question number `serial`."""
        values = {name: c.to_form(self._wanted[name]) for name, c in self._controls.items()}
        if self.width is not None:
            values["D"] = None if "H" in self._blamed else self._held_size(self.width)
        return {
            "answers": serial,
            "values": values,
            "held": self.width is not None,
            "blamed": list(self._blamed),
            "status": self.status,
            "figures": self._figures(),
            "message": self.message,
            "changed": self.changed,
        }

    def _figures(self) -> list[tuple[str, str, str]]:
        """What is counted beside the picture: a label, a number, and its change against the setting before."""
        return [(c.label, c.text(c.number), _change(self._before.get(c.label), c)) for c in self._counted]

    def _send(self) -> None:
        with self._panel.hold_sync():
            self._panel.picture = self._picture
            self._panel.state = self._state(self._panel.asked.get("serial", 0))

    def _answer(self, change: Any) -> None:
        """Do what the browser asked. An answer always leaves, so that the controls never wait for one."""
        asked = change["new"]
        try:
            if self._has_width and asked["held"] != (self.width is not None):
                self._switch(asked["held"])
            else:
                values = {name: c.from_form(asked["values"][name]) for name, c in self._controls.items()}
                if self.width is not None:
                    del values["D"]
                self._wanted |= values
                self._settle()
        finally:
            self._send()

    def __repr__(self) -> str:
        """Say the picture's values, or why there is no picture."""
        return f"<Explorer: {self.status or self.message}>"

    def _repr_html_(self) -> str:
        """The present picture without controls: what an exported page or a saved notebook shows."""
        lines = [self.status, *(f"{label}: {number}" for label, number, _change in self._figures()), self.message]
        return f"<p>{html.escape('; '.join(filter(None, lines)))}</p>{self._picture}"

    def _ipython_display_(self) -> None:
        """Show the controls, and apart from them the still picture, which they hide wherever they come to life.

        Two outputs: of one output with both forms, an exported page takes the controls, and shows nothing.
        """
        controls, metadata = self._panel._repr_mimebundle_() or ({}, {})
        show: Callable[..., None] = display
        show(controls | {"text/plain": repr(self)}, metadata=metadata, raw=True)
        still = f'<div class="{self._panel.form["still"]}">{self._repr_html_()}</div>'
        show({"text/html": still, "text/plain": ""}, raw=True)


def _first_values(build: Callable[..., Any], controls: Mapping[str, _Control]) -> dict[str, Any]:
    """Start from the defaults of `build`'s own parameters."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    return {name: control.first(defaults.get(name)) for name, control in controls.items()}


# ------------------------------------------------------------------ what is counted


@dataclass(frozen=True, slots=True)
class _Count:
    """One number beside the picture; `unit` is "B" for bytes, "" for what is counted in full."""

    label: str
    number: int
    unit: str | None = None

    def text(self, number: int) -> str:
        return f"{number:,}" if self.unit is None else short(number, self.unit)


def _count(parameters: int | None, model: Any, run: Any) -> list[_Count]:
    """Count what a setting costs: parameters, and the run where it is a Trace."""
    counts = [] if parameters is None else [_Count(_("Parameters"), parameters)]
    if isinstance(run, Trace):
        counts += [
            _Count(_("FLOPs"), run.flops, ""),
            _Count(_("New memory"), run.bytes_new, "B"),
            _Count(_("Peak memory"), run.peak.bytes, "B"),
        ]
        cache = _cache_bytes(model, run)
        if cache:
            counts.append(_Count(_("KV cache"), cache, "B"))
    return counts


def _cache_bytes(model: Any, run: Trace) -> int:
    """Return the bytes of all keys and values of these positions, as a cache for generation holds them; 0 without one.

    A layer keeps B·T·G·(D + D_v) numbers. Layers are counted that look at no later position; of a Hugging Face model,
    those that its config tells, where it can generate.
    """
    B, T = run.sizes.get("B", 0), run.sizes.get("T", 0)
    numbers = 0
    if hasattr(model, "modules"):
        layers = [m for m in model.modules() if getattr(m, "causal", False) is True and hasattr(m, "n_kv_head")]
        numbers = sum(m.n_kv_head * (m.d_head + m.d_value) for m in layers)
        config: Any = getattr(model, "config", None)
        if not layers and hasattr(model, "can_generate") and model.can_generate():
            H, C = config.num_attention_heads, config.hidden_size
            G = getattr(config, "num_key_value_heads", None) or H
            numbers = config.num_hidden_layers * G * 2 * (getattr(config, "head_dim", None) or C // H)
        first = next(model.parameters(), None)
        return B * T * numbers * (first.element_size() if first is not None else 4)
    return 0


def _change(before: int | None, count: _Count) -> str:
    """Say how a number stands to the one of the setting before, or nothing."""
    if before is None:
        return ""
    if before == count.number:
        return _("unchanged")
    share = f" ({(count.number - before) / before:+.0%})" if before else ""
    return say("before: {number}{share}", number=count.text(before), share=share)


def _difference(before: Any, now: Any) -> str:
    """Say where two runs part, where both are traces."""
    if not (isinstance(before, Trace) and isinstance(now, Trace)):
        return ""
    return before.diff(now, names=(_("before"), _("now"))).sentence


def _html(shown: Any) -> str:
    """Return the HTML of what a view gave: a string as it stands, a figure as SVG, else the object's own."""
    if isinstance(shown, str):
        return shown
    if hasattr(shown, "savefig"):
        drawn = StringIO()
        shown.savefig(drawn, format="svg")
        return drawn.getvalue()[drawn.getvalue().index("<svg") :]
    make = getattr(shown, "_repr_html_", None) or getattr(shown, "to_html", None)
    if make is None:
        text = _("show must return HTML, a figure or an object with _repr_html_; it returned {kind}.")
        raise TypeError(text.format(kind=type(shown).__name__))
    return str(make())


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Leave torch's random numbers as they were: how often a slider moved must not change the cells below."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices):
        yield


class _Panel(anywidget.AnyWidget):
    """The browser's side: `form`, `state` and `picture` go there, `asked` comes back."""

    _esm = WIDGET / "explore.js"
    _css = WIDGET / "explore.css"
    form = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    picture = traitlets.Unicode().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)
