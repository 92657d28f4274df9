"""The player as a widget: `t.play()`. What it shows is packed by `render/player.py`, and drawn by `widget/player.js`.

The same scripts, put together in the same way, are part of the page that `t.to_html()` makes.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets
from IPython.display import display

from .render.player import WIDGET, script

__all__ = ["Player"]


class Player(anywidget.AnyWidget):
    """A trace, step by step. It holds the packed trace and no tensor; all of it runs in the browser."""

    _esm = script()
    _css = (WIDGET / "player.css").read_text(encoding="utf-8")
    trace = traitlets.Dict().tag(sync=True)

    def __init__(self, trace: Mapping[str, Any], still: str = "") -> None:
        """`still` is what shows in a page where no widget comes to life."""
        self._still, self._mark = still, f"tracer-still-{uuid.uuid4().hex}"
        super().__init__(trace={**trace, "still": self._mark})

    def _ipython_display_(self) -> None:
        """Show the player, and apart from it the still table, which it hides wherever it comes to life.

        Two outputs: of one output with both forms, an exported page takes the widget, and shows nothing.
        """
        live, metadata = self._repr_mimebundle_() or ({}, {})
        show: Callable[..., None] = display
        show(live | {"text/plain": repr(self)}, metadata=metadata, raw=True)
        show({"text/html": f'<div class="{self._mark}">{self._still}</div>', "text/plain": ""}, raw=True)

    def __repr__(self) -> str:
        """Say what is played: the trace's own head."""
        return f"<Player: {', '.join(self.trace['head'])}>"
