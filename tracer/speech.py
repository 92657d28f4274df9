"""The sentences that a reader sees, through the standard library's gettext: domain `tracer`, English is the source.

`N_` marks a sentence where it is written down, `_` translates it where it is shown, so that one process can be
switched to another language; `say` also fills in values, after the translation. Without a catalogue English comes back.
"""

import gettext
from functools import cache
from pathlib import Path

__all__ = ["N_", "_", "say", "say_count"]

LOCALE = Path(__file__).resolve().parent / "locale"


@cache
def _catalogue() -> gettext.NullTranslations:
    return gettext.translation("tracer", LOCALE, fallback=True)


def N_(text: str) -> str:
    """Mark `text` for translation and return it unchanged."""
    return text


def _(text: str) -> str:
    """Return `text` in the reader's language, English where there is no catalogue."""
    return _catalogue().gettext(text) if text else ""  # gettext("") would return the catalogue's header


def say(text: str, **values: object) -> str:
    """Return the sentence in the reader's language with its values filled in.

    Example:
        >>> say("{name} has {n} axes", name="q", n=4)
        'q has 4 axes'
    """
    return _(text).format(**values)


def say_count(one: str, many: str, n: int, **values: object) -> str:
    """Return the form of a sentence that fits the number `n`, with `{n}` and its values filled in.

    Example:
        >>> say_count("{n} warning", "{n} warnings", 2)
        '2 warnings'
    """
    return _catalogue().ngettext(one, many, n).format(n=n, **values)
