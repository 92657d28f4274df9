"""Sentences for learners, through the standard library's gettext: domain `tracer`, English is the source.

`N_` marks a sentence where it is written down, `_` translates it where it is shown, so that one process can be
switched to another language. Without a catalogue both give the English text back.
"""

import gettext
from functools import cache
from pathlib import Path

__all__ = ["N_", "_"]

LOCALE = Path(__file__).resolve().parent.parent / "locale"


@cache
def _catalogue() -> gettext.NullTranslations:
    return gettext.translation("tracer", LOCALE, fallback=True)


def N_(text: str) -> str:
    """Mark `text` for translation and return it unchanged."""
    return text


def _(text: str) -> str:
    """Return `text` in the reader's language, English where there is no catalogue."""
    return _catalogue().gettext(text) if text else ""  # gettext("") would return the catalogue's header
