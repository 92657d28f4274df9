"""Small data to train on in class: sorting, reversal, copying, dates, names, and the 8x8 digits.

Each task draws a batch with `batch(size, generator)`: a dict of tensors that go to the model by name, so that
`model(**task.batch(64, generator))` returns `(logits, loss)`. Targets of -1 are left out of the loss.
Sizes `vocab_size` (and `block_size`, the largest T) are what the model has to be built with.
"""

import csv
import gzip
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import torch
from torch import Generator, Tensor

__all__ = ["Alphabet", "Batch", "Copy", "Dates", "Digits", "Names", "Reversal", "Sort", "accuracy"]

Batch = dict[str, Tensor]
IGNORED = -1
_DIGITS = Path(__file__).with_name("digits.csv.gz")


def accuracy(logits: Tensor, targets: Tensor) -> float:
    """Return the share of targets that are the likeliest: logits `[..., V]`, targets `[...]`; -1 does not count."""
    counted = targets != IGNORED
    return (logits.argmax(-1) == targets)[counted].double().mean().item()


def _check(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {least}.")


# ------------------------------------------------------------------ one sequence: for GPT and CausalConv


@dataclass(frozen=True)
class Sort:
    """Digits, then the same digits sorted; only the sorted half is scored (minGPT's demonstration).

    >>> task = Sort(length=3, vocab_size=10)
    >>> {name: list(x.shape) for name, x in task.batch(2, Generator().manual_seed(0)).items()}
    {'idx': [2, 5], 'targets': [2, 5]}
    """

    length: int = 6
    vocab_size: int = 3

    def __post_init__(self) -> None:
        _check("length", self.length, 1)
        _check("vocab_size", self.vocab_size, 2)

    @property
    def block_size(self) -> int:
        """Largest T: both halves, without the last token, which nothing follows."""
        return 2 * self.length - 1

    def batch(self, size: int, generator: Generator) -> Batch:
        """Return idx and targets, both `[B, 2 length - 1]`."""
        digits = torch.randint(self.vocab_size, (size, self.length), generator=generator)
        both = torch.cat([digits, digits.sort(dim=1).values], dim=1)
        targets = both[:, 1:].clone()
        targets[:, : self.length - 1] = IGNORED  # the digits themselves are random: nothing to learn
        return {"idx": both[:, :-1], "targets": targets}


@dataclass(frozen=True)
class Copy:
    """At each position the token from `back` positions before: needs to find a place, not a content."""

    back: int = 3
    length: int = 32
    vocab_size: int = 16

    def __post_init__(self) -> None:
        _check("back", self.back, 0)
        _check("length", self.length, self.back + 1)
        _check("vocab_size", self.vocab_size, 2)

    @property
    def block_size(self) -> int:
        """Largest T."""
        return self.length

    def batch(self, size: int, generator: Generator) -> Batch:
        """Return idx and targets, both `[B, length]`."""
        idx = torch.randint(self.vocab_size, (size, self.length), generator=generator)
        targets = idx.roll(self.back, dims=1)
        targets[:, : self.back] = IGNORED
        return {"idx": idx, "targets": targets}


@dataclass(frozen=True)
class Alphabet:
    """Characters as ids: 0 pads, 1 starts, 2 stops, the others follow."""

    letters: str

    @property
    def size(self) -> int:
        """V: how many ids there are."""
        return len(self.letters) + 3

    def ids(self, text: str) -> list[int]:
        """Return one id for each character. Raises ValueError for one that is not in the alphabet."""
        strange = sorted(set(text) - set(self.letters))
        if strange:
            raise ValueError(f"{strange[0]!r} is not one of the characters that this task knows: {self.letters}")
        return [self.letters.index(one) + 3 for one in text]

    def text(self, ids: Tensor) -> str:
        """Return the characters of one row of ids, up to the stop."""
        row = ids.tolist()
        row = row[: row.index(2)] if 2 in row else row
        return "".join(self.letters[one - 3] for one in row if one >= 3)


_NAMES = """
ada adam agnes aiko alan alba alice alma amina amir ana anders andrea anna anton aria arjun asha astrid aya bao basil
beatriz bela ben bianca boris bruno camila carl carmen cecilia chen chiara chloe clara cleo dalia daniel daria david
diego dina dora edith elena eli elif elsa emil emma erik ester eva fatima felix fiona flora freya gabriel greta hana
hannah haruto hassan helena hugo ida ines ingrid iris isaac ivan jana jasmin jin joana johan jonas jun kaito karim
katya kenji kira lars laura lea leila lena leo lin lina lionel lucas lucia luis luna maja malik mara marco maria marta
maya mei mila mina mira mohamed nadia naomi nia nico nina noah nora olga oliver omar oscar otto pablo paula pavel petra
priya rafael rania ravi rosa ruth sakura salma samir sana sara selma silvia simon sofia soren stefan sven tara theo
tomas uma valentina vera victor vida wei xin yara yuki yusuf zara zoe
""".split()


@dataclass(frozen=True)
class Names:
    """First names, letter by letter: the smallest language model."""

    names: tuple[str, ...] = tuple(_NAMES)
    alphabet: Alphabet = Alphabet("abcdefghijklmnopqrstuvwxyz")

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.alphabet.size

    @property
    def block_size(self) -> int:
        """Largest T: the start and the longest name."""
        return 1 + max(map(len, self.names))

    def batch(self, size: int, generator: Generator) -> Batch:
        """Return idx `[B, T]`, which begins with the start, and targets `[B, T]`, which end with the stop."""
        chosen = torch.randint(len(self.names), (size,), generator=generator).tolist()
        idx, targets = _shifted([self.alphabet.ids(self.names[i]) for i in chosen], self.block_size)
        return {"idx": idx, "targets": targets}


# ------------------------------------------------------------------ two sequences: for RNNSeq2Seq and EncoderDecoder


@dataclass(frozen=True)
class Reversal:
    """A sequence of symbols and the same backwards: the last is wanted first, and nothing but the length is hard.

    With `shortest` below `length` each source has its own length, is padded, and its target ends with the stop.
    """

    length: int = 10
    symbols: int = 10
    shortest: int | None = None

    def __post_init__(self) -> None:
        _check("symbols", self.symbols, 2)
        _check("length", self.length, 1)
        _check("shortest", self.length if self.shortest is None else self.shortest, 1)
        if self.shortest is not None and self.shortest > self.length:
            raise ValueError(f"shortest={self.shortest} is above length={self.length}.")

    @property
    def vocab_size(self) -> int:
        """V of source and target: 0 pads, 1 starts, 2 stops, the symbols follow."""
        return self.symbols + 3

    @property
    def block_size(self) -> int:
        """Largest S and T: the target has the stop besides."""
        return self.length + 1

    def batch(self, size: int, generator: Generator) -> Batch:
        """Return src `[B, S]`, src_padding `[B, S]`, idx `[B, S+1]` and targets `[B, S+1]`."""
        least = self.length if self.shortest is None else self.shortest
        lengths = torch.randint(least, self.length + 1, (size,), generator=generator).tolist()
        rows = [torch.randint(3, self.vocab_size, (n,), generator=generator).tolist() for n in lengths]
        return _pair(rows, [row[::-1] for row in rows], self.length, self.length + 1)


_MONTHS = "january february march april may june july august september october november december".split()


@dataclass(frozen=True)
class Dates:
    """Dates as people write them, and as 2026-03-05: word order moves, and months become numbers."""

    alphabet: Alphabet = Alphabet(" ,-./0123456789abcdefghijlmnoprstuvy")
    first: date = date(1950, 1, 1)
    days: int = 36525

    @property
    def vocab_size(self) -> int:
        """V of source and target."""
        return self.alphabet.size

    @property
    def block_size(self) -> int:
        """Largest S and T."""
        return len("wednesday, september 30, 2026")

    def written(self, day: date, style: int) -> str:
        """Return one of the five ways to write a day."""
        month = _MONTHS[day.month - 1]
        return (
            f"{month} {day.day}, {day.year}",
            f"{day.day} {month} {day.year}",
            f"{day.day} {month[:3]} {day.year}",
            f"{day.day:02}.{day.month:02}.{day.year}",
            f"{month[:3]} {day.day}, {day.year}",
        )[style]

    def batch(self, size: int, generator: Generator) -> Batch:
        """Return src `[B, S]`, src_padding `[B, S]`, idx and targets `[B, 11]`: ten characters and the stop."""
        days = torch.randint(self.days, (size,), generator=generator).tolist()
        styles = torch.randint(5, (size,), generator=generator).tolist()
        dates = [self.first + timedelta(days=n) for n in days]
        sources = [self.alphabet.ids(self.written(day, style)) for day, style in zip(dates, styles, strict=True)]
        return _pair(sources, [self.alphabet.ids(day.isoformat()) for day in dates], max(map(len, sources)), 11)


def _shifted(rows: list[list[int]], T: int) -> tuple[Tensor, Tensor]:
    """Return idx and targets `[B, T]`: a row after the start, and the row with its stop, padded with -1."""
    idx = [[1, *row, *[0] * (T - len(row) - 1)] for row in rows]
    targets = [[*row, 2, *[IGNORED] * (T - len(row) - 1)] for row in rows]
    return torch.tensor(idx), torch.tensor(targets)


def _pair(sources: list[list[int]], rows: list[list[int]], S: int, T: int) -> Batch:
    """Return the batch for an encoder-decoder; sources are padded to S, rows to T."""
    idx, targets = _shifted(rows, T)
    src = torch.tensor([[*row, *[0] * (S - len(row))] for row in sources])
    return {"src": src, "idx": idx, "targets": targets, "src_padding": src != 0}


# ------------------------------------------------------------------ pictures: for VisionTransformer


class Digits:
    """1,797 handwritten digits of 8x8 pixels, from the hands of 13 people; every fifth is kept for the test.

    `digits.csv.gz` is the test set of 'Optical Recognition of Handwritten Digits' (E. Alpaydin & C. Kaynak 1998, UCI
    Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0), unchanged, in the form in which scikit-learn ships it.
    """

    def __init__(self) -> None:
        with gzip.open(_DIGITS, "rt", encoding="ascii", newline="") as file:
            rows = torch.tensor([[float(x) for x in row] for row in csv.reader(file)])  # [1797, 65]
        self.images = (rows[:, :-1] / 16).view(-1, 1, 8, 8)
        """`[1797, 1, 8, 8]`: R = 1 colour, Y = X = 8, from 0 to 1."""
        self.labels = rows[:, -1].long()
        """`[1797]`, 0 to 9."""

    def batch(self, size: int, generator: Generator) -> Batch:
        """Return images `[B, 1, 8, 8]` and targets `[B]` drawn from those for training."""
        places = torch.arange(len(self.labels))
        train = places[places % 5 != 0]
        chosen = train[torch.randint(len(train), (size,), generator=generator)]
        return {"images": self.images[chosen], "targets": self.labels[chosen]}

    def test(self) -> Batch:
        """Return the 360 pictures that training never sees."""
        return {"images": self.images[::5], "targets": self.labels[::5]}
