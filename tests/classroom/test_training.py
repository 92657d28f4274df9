"""The training loop: it learns, repeats itself, stops when asked, and leaves torch's state alone."""

import copy

import pytest
import torch
from torch import nn

from tracer.classroom.tasks import Copy, Digits, Reversal, Sort, accuracy
from tracer.classroom.training import train
from tracer.models import GPT, CausalConv, GPTConfig, RNNSeq2Seq, VisionTransformer

TASK = Sort(length=4, vocab_size=3)
QUIET = {"progress": False, "device": "cpu"}


def made(dropout: float = 0.0) -> GPT:
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 3, "block_size": TASK.block_size}
    return GPT(GPTConfig(dropout=dropout, **sizes))


def same(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def share_right(model: nn.Module, task) -> float:
    batch = task.test() if isinstance(task, Digits) else task.batch(200, torch.Generator().manual_seed(9))
    targets = batch.pop("targets")
    with torch.no_grad():
        return accuracy(model(**batch)[0], targets)


def test_sorting_is_learned():
    model = made()
    assert share_right(model, TASK) < 0.6
    losses = train(model, TASK.batch, steps=250, lr=1e-2, **QUIET)
    assert share_right(model, TASK) > 0.95
    assert len(losses) == 250 and losses[-1] < 0.3 < losses[0]
    assert not model.training


def test_copying_is_learned_within_a_convolutions_reach_and_not_beyond():
    task = Copy(back=3, length=16, vocab_size=5)
    found = {}
    for layers in (1, 2):
        torch.manual_seed(0)
        model = CausalConv(16, 5, n_layer=layers, window=3)
        train(model, task.batch, steps=150, size=32, lr=1e-2, **QUIET)
        found[model.reach] = share_right(model, task)
    assert found[3] < 0.4
    assert found[5] > 0.95


def test_reversal_is_learned_with_attention():
    task = Reversal(length=4, symbols=4)
    torch.manual_seed(0)
    model = RNNSeq2Seq(24, task.vocab_size, attention=True)
    train(model, task.batch, steps=250, size=32, lr=1e-2, **QUIET)
    assert share_right(model, task) > 0.9


def test_digits_are_learned():
    torch.manual_seed(0)
    task = Digits()
    model = VisionTransformer((8, 8), 2, n_class=10, n_layer=1, n_head=2, n_embd=32)
    train(model, task.batch, steps=200, size=64, lr=5e-3, **QUIET)
    assert share_right(model, task) > 0.7


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_seed_decides_and_torchs_own_state_is_left_alone(dropout):
    first, second, third = made(dropout), made(dropout), made(dropout)
    train(first, TASK.batch, steps=3, seed=1, **QUIET)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(second, TASK.batch, steps=3, seed=1, **QUIET)
    assert torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(state)
    train(third, TASK.batch, steps=3, seed=2, **QUIET)
    assert same(first, second)
    assert not same(first, third)


def test_a_stop_keeps_the_model_and_the_losses(capsys):
    calls = []

    def batch(size, generator):
        calls.append(size)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return TASK.batch(size, generator)

    model, whole = made(), made()
    start = copy.deepcopy(model)
    losses = train(model, batch, steps=50, size=5, progress=True, device="cpu")
    assert (len(losses), calls) == (3, [5, 5, 5, 5])
    assert not model.training and not same(model, start)
    assert "Stopped after 3 of 50 steps" in "".join(capsys.readouterr())
    assert losses == train(whole, TASK.batch, steps=50, size=5, **QUIET)[:3]


def test_another_error_leaves_the_model_ready_too():
    def batch(size, generator):
        raise RuntimeError("no data")

    model = made()
    with pytest.raises(RuntimeError, match="no data"):
        train(model, batch, steps=5, **QUIET)
    assert not model.training


def test_it_trains_where_the_device_is_found(monkeypatch):
    monkeypatch.setenv("SHAPE_TRACER_DEVICE", "cpu")
    model = made()
    train(model, TASK.batch, steps=1, progress=False)
    assert next(model.parameters()).device.type == "cpu"


def test_bad_input_gets_one_clear_error():
    with pytest.raises(ValueError, match="steps=0"):
        train(made(), TASK.batch, steps=0, **QUIET)

    def nothing_scored(size, generator):
        batch = TASK.batch(size, generator)
        return batch | {"targets": torch.full_like(batch["targets"], -1)}

    with pytest.raises(ValueError, match="The loss is nan"):
        train(made(), nothing_scored, steps=2, **QUIET)
