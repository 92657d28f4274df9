"""Data for class: what a batch holds is what the task says."""

import re
from datetime import date

import pytest
import torch
from torch import Generator

from tracer.classroom.tasks import Alphabet, Copy, Dates, Digits, Names, Reversal, Sort, accuracy
from tracer.models import GPT, CausalConv, EncoderDecoder, GPTConfig, RNNSeq2Seq, VisionTransformer

TASKS = {
    "sort": Sort(5, 7), "copy": Copy(2, 9, 5), "reversal": Reversal(6, 5), "mixed": Reversal(6, 5, shortest=2),
    "names": Names(), "dates": Dates(), "digits": Digits(),
}  # fmt: skip
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def drawn(task, size=50, seed=0):
    return task.batch(size, Generator().manual_seed(seed))


@every_task
def test_the_seed_decides(task):
    one, same, other = drawn(task), drawn(task), drawn(task, seed=1)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    state = torch.get_rng_state()
    drawn(task)
    assert torch.equal(torch.get_rng_state(), state)


@every_task
def test_models_take_a_batch_by_name(task):
    torch.manual_seed(0)
    batch = drawn(task, 3)
    if isinstance(task, Digits):
        models = [VisionTransformer((8, 8), 2, n_class=10, n_layer=1, n_head=2, n_embd=8)]
    elif "src" in batch:
        models = [RNNSeq2Seq(8, task.vocab_size, attention=True)]
        models.append(
            EncoderDecoder(
                n_layer=1,
                n_head=2,
                n_embd=8,
                vocab_size=task.vocab_size,
                block_size=task.block_size,
                positions="learned",
            )
        )
    else:
        sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": task.vocab_size, "block_size": task.block_size}
        models = [GPT(GPTConfig(**sizes)), CausalConv(8, task.vocab_size)]
    for model in models:
        logits, loss = model(**batch)
        assert logits.shape[:-1] == batch["targets"].shape
        assert loss.isfinite()


def test_sort():
    batch = drawn(TASKS["sort"])
    both = torch.cat([batch["idx"], batch["targets"][:, -1:]], dim=1)
    assert torch.equal(both[:, 5:], both[:, :5].sort(dim=1).values)
    assert torch.equal(batch["targets"][:, 4:], both[:, 5:])
    assert (batch["targets"][:, :4] == -1).all()
    assert batch["idx"].shape == (50, TASKS["sort"].block_size)


def test_copy():
    batch = drawn(TASKS["copy"])
    assert torch.equal(batch["targets"][:, 2:], batch["idx"][:, :-2])
    assert (batch["targets"][:, :2] == -1).all()


@pytest.mark.parametrize("name", ["reversal", "mixed"])
def test_reversal(name):
    batch, lengths = drawn(TASKS[name]), set()
    for src, real, idx, targets in zip(*(batch[k] for k in ("src", "src_padding", "idx", "targets")), strict=True):
        n = int(real.sum())
        lengths.add(n)
        want = src[:n].flip(0).tolist()
        assert real[:n].all() and min(want) >= 3
        assert targets[: n + 1].tolist() == [*want, 2]
        assert idx[: n + 1].tolist() == [1, *want]
        assert (targets[n + 1 :] == -1).all()
    assert lengths == ({6} if name == "reversal" else {2, 3, 4, 5, 6})


def test_names():
    task, batch = TASKS["names"], drawn(TASKS["names"])
    assert len(set(task.names)) == len(task.names) > 100
    for idx, targets in zip(batch["idx"], batch["targets"], strict=True):
        assert task.alphabet.text(targets) in task.names
        assert idx[0] == 1 and idx[1:].tolist() == [max(t, 0) * (t != 2) for t in targets[:-1].tolist()]


def test_dates():
    task = TASKS["dates"]
    written = [task.written(date(2026, 3, 5), style) for style in range(5)]
    assert written == ["march 5, 2026", "5 march 2026", "5 mar 2026", "05.03.2026", "mar 5, 2026"]
    batch = drawn(task)
    for src, targets in zip(batch["src"], batch["targets"], strict=True):
        day = date.fromisoformat(task.alphabet.text(targets))
        assert task.alphabet.text(src) in [task.written(day, style) for style in range(5)]
        assert targets[-1] == 2
    for month in range(1, 13):  # every letter that can come up has an id
        assert all(task.alphabet.ids(task.written(date(2026, month, 28), style)) for style in range(5))
    assert batch["src"].shape[1] <= task.block_size


def test_digits():
    task = TASKS["digits"]
    assert task.images.shape == (1797, 1, 8, 8)
    assert (task.images.min(), task.images.max()) == (0, 1)
    # how often each digit occurs, by the data's own description
    assert task.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    test = {image.numpy().tobytes() for image in task.test()["images"]}
    train = {image.numpy().tobytes() for image in drawn(task, 3000)["images"]}
    assert len(test) == 360 and not test & train
    means = torch.stack([task.images[task.labels == d].mean(0) for d in range(10)])
    nearest = (task.test()["images"].unsqueeze(1) - means).pow(2).sum((2, 3, 4)).argmin(1)
    assert (nearest == task.test()["targets"]).double().mean() > 0.85  # pictures and labels belong together


def test_accuracy_leaves_ignored_targets_out():
    logits = torch.eye(4)[[0, 1, 2, 3]]
    assert accuracy(logits, torch.tensor([0, 1, 0, -1])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sort(length=0), "length=0"),
        (lambda: Sort(vocab_size=1), "vocab_size=1"),
        (lambda: Copy(back=5, length=5), "length=5: give a whole number of at least 6"),
        (lambda: Reversal(length=3, shortest=4), "shortest=4 is above length=3"),
        (lambda: Reversal(symbols=1.5), "symbols=1.5"),
        (lambda: Alphabet("abc").ids("abd"), "'d' is not one of the characters"),
    ],
)
def test_bad_input_gets_one_clear_error(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make()
