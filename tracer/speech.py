"""The sentences a reader sees pass through here, so that a catalogue can give them in another language.

English is the source. Knows no sentence itself; numbers, names and shapes are filled in after the translation.
"""

from gettext import dgettext, dngettext

__all__ = ["say", "say_count"]

_DOMAIN = "shape-tracer"


def say(text: str, **values: object) -> str:
    """Return the sentence in the reader's language with its values filled in.

    Example:
        >>> say("{name} has {n} axes", name="q", n=4)
        'q has 4 axes'
    """
    return dgettext(_DOMAIN, text).format(**values)


def say_count(one: str, many: str, n: int, **values: object) -> str:
    """Return the form of a sentence that fits the number `n`, with `{n}` and its values filled in.

    Example:
        >>> say_count("{n} warning", "{n} warnings", 2)
        '2 warnings'
    """
    return dngettext(_DOMAIN, one, many, n).format(n=n, **values)
