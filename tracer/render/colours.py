"""One fixed colour for each axis, the same in every picture; never the only sign: the name stands with it.

Chosen so that B, T, S, C, H, D stay apart for red-, green- and blue-blind readers (simulated after Machado, Oliveira
and Fernandes 2009), and so that each can be read as text: contrast at least 4.5 on a page of its theme. The tests
measure both.
"""

import re
from zlib import crc32

__all__ = ["AXIS_COLOURS", "SYMBOL", "axis_colour"]

SYMBOL = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
"""A symbol inside an axis name: the H and the D of `(H D)`."""

AXIS_COLOURS = {
    "B": ("#554444", "#eeddcc"),
    "T": ("#2211ee", "#66aaff"),
    "S": ("#117788", "#00eeff"),
    "C": ("#aa5511", "#ddaa66"),
    "H": ("#bb00bb", "#ff77bb"),
    "D": ("#335522", "#aaff22"),
    "G": ("#bb4466", "#ffaabb"),
    "M": ("#551188", "#aa99dd"),
    "V": ("#444400", "#aaaa00"),
    "L": ("#aa11ee", "#ee77ff"),
    "E": ("#4400aa", "#aabbff"),
    "K": ("#116655", "#00cc99"),
    "P": ("#995544", "#ee8877"),
    "Y": ("#886633", "#eecc66"),
    "X": ("#557711", "#ccee99"),
    "R": ("#990011", "#ff9999"),
    "N": ("#004466", "#77ccee"),
}
"""Axis symbol -> (on a light page, on a dark page)."""

_PLAIN = ("#444444", "#cccccc")
_OTHERS = tuple(AXIS_COLOURS[symbol] for symbol in "GMLEKPYXRN")


def axis_colour(name: str) -> tuple[str, str]:
    """Return the (light, dark) colour of an axis; of its first symbol, where the name is made of several.

    Example:
        >>> axis_colour("3C") == axis_colour("C")
        True
    """
    found = SYMBOL.search(name)
    if found is None:
        return _PLAIN
    symbol = found.group()
    return AXIS_COLOURS.get(symbol) or _OTHERS[crc32(symbol.encode()) % len(_OTHERS)]
