"""The recording that the shapes document announces: every shape of minGPT's forward, read off a trace, by name.

tests/data/mingpt_record.json holds what minGPT itself gives.
"""

import json
from pathlib import Path

import pytest
import torch

import tracer
from tests.models.test_gpt import filled
from tracer.models import GPTConfig

RECORD = json.loads((Path(__file__).parent / "data" / "mingpt_record.json").read_text(encoding="utf-8"))
BLOCK, ATTN = "transformer.h.0", "transformer.h.0.attn"


@pytest.fixture(scope="module")
def trace() -> tracer.Trace:
    model = filled(GPTConfig(n_layer=3, n_head=3, n_embd=48, vocab_size=10, block_size=8))
    facts = RECORD["loss_rng_free"]
    return tracer.trace(model, torch.tensor(facts["idx"]), torch.tensor(facts["targets"]))


def last(trace, name, module, variable=None):
    """Return the last output of an operation of this name in a module, its named shape and its sizes."""
    found = [
        op for op in trace.find(name=name) if op.module == module and (variable is None or op.variable == variable)
    ]
    return found[-1].outputs[0]


EXPECTED = {
    "tok_emb": ("[B, T, C]", lambda t: t["tok_emb"]),
    "pos_emb": ("[1, T, C]", lambda t: t["pos_emb"]),
    "x": ("[B, T, C]", lambda t: last(t, "dropout", "transformer.drop")),
    "block.ln_1": ("[B, T, C]", lambda t: last(t, "layer_norm", f"{BLOCK}.ln_1")),
    "block.attn.c_attn (qkv fused)": ("[B, T, 3C]", lambda t: last(t, "linear", f"{ATTN}.c_attn")),
    "block.attn.q before split into heads": ("[B, T, C]", lambda t: last(t, "split", ATTN)),
    "block.attn.q": ("[B, H, T, D]", lambda t: last(t, "transpose", ATTN, "q")),
    "block.attn.k": ("[B, H, T, D]", lambda t: last(t, "transpose", ATTN, "k")),
    "block.attn.v": ("[B, H, T, D]", lambda t: last(t, "transpose", ATTN, "v")),
    "block.attn.k^T": ("[B, H, D, T]", lambda t: t.find(name="matmul", module=ATTN)[0].inputs[1]),
    "block.attn.score (q@k^T/sqrt(hs))": ("[B, H, T, T]", lambda t: last(t, "div", ATTN, "scores")),
    "block.attn.mask (tril, broadcast)": ("[1, 1, T, T]", lambda t: last(t, "getitem", ATTN, "mask")),
    "block.attn.score masked": ("[B, H, T, T]", lambda t: last(t, "masked_fill", ATTN, "scores")),
    "block.attn.weight (softmax)": ("[B, H, T, T]", lambda t: last(t, "softmax", ATTN, "weights")),
    "block.attn.head output (weight@v)": ("[B, H, T, D]", lambda t: last(t, "matmul", ATTN, "heads")),
    "block.attn.concat": ("[B, T, C]", lambda t: last(t, "view", ATTN, "out")),
    "block.attn.c_proj out": ("[B, T, C]", lambda t: last(t, "linear", f"{ATTN}.c_proj")),
    "block.residual 1": ("[B, T, C]", lambda t: t.find(name="add", module=BLOCK)[0].outputs[0]),
    "block.ln_2": ("[B, T, C]", lambda t: last(t, "layer_norm", f"{BLOCK}.ln_2")),
    "block.mlp.c_fc": ("[B, T, M]", lambda t: last(t, "linear", f"{BLOCK}.mlp.c_fc")),
    "block.mlp.act (NewGELU/tanh)": ("[B, T, M]", lambda t: t.find(name="gelu", module=f"{BLOCK}.mlp")[0].outputs[0]),
    "block.mlp.c_proj": ("[B, T, C]", lambda t: last(t, "linear", f"{BLOCK}.mlp.c_proj")),
    "block.block out (residual 2)": ("[B, T, C]", lambda t: t.find(name="add", module=BLOCK)[1].outputs[0]),
    "ln_f": ("[B, T, C]", lambda t: last(t, "layer_norm", "transformer.ln_f")),
    "logits": ("[B, T, V]", lambda t: t["logits"]),
    "logits flattened for loss": ("[(B T), V]", lambda t: t.find(name="cross_entropy")[0].inputs[0]),
    "loss": ("[]", lambda t: t["loss"]),
}


def test_every_recorded_shape_is_looked_at() -> None:
    assert set(EXPECTED) == set(RECORD["shapes"]) - {"idx"}


@pytest.mark.parametrize("what", EXPECTED)
def test_shape_and_names(trace: tracer.Trace, what: str) -> None:
    label, pick = EXPECTED[what]
    found = pick(trace)
    assert (list(found.shape), found.label) == (RECORD["shapes"][what], label)


def test_input(trace: tracer.Trace) -> None:
    idx = trace.find(name="embedding")[0].inputs[0]
    assert (list(idx.shape), idx.label, idx.variable) == (RECORD["shapes"]["idx"], "[B, T]", "idx")


def test_loss_of_the_traced_run(trace: tracer.Trace) -> None:
    assert trace.output[1].item() == RECORD["loss_rng_free"]["loss_float32"]


def test_scores_say_whose_axis_each_is(trace: tracer.Trace) -> None:
    assert trace["scores"].origins == (None, None, "T of q", "T of k")


def test_what_copies_memory(trace: tracer.Trace) -> None:
    attention = trace.find(module=ATTN)
    kinds = {op.name: {o.memory for o in op.outputs} for op in attention}
    assert kinds["view"] == kinds["transpose"] == kinds["split"] == {"view"}
    assert kinds["contiguous"] == kinds["matmul"] == {"new"}
    assert kinds["dropout"] == {"same"}  # in evaluation mode it gives back its input


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training with dropout"])
def test_output_loss_gradients_and_random_state_are_those_of_the_plain_run(training: bool) -> None:
    config = GPTConfig(n_layer=2, n_head=3, n_embd=21, vocab_size=11, block_size=5, dropout=0.1)
    idx, targets = torch.arange(10).view(2, 5), torch.arange(1, 11).view(2, 5)

    def run(call) -> list[torch.Tensor]:
        model = filled(config).train(training)
        torch.manual_seed(0)
        logits, loss = call(model)
        loss.backward()
        return [logits, loss, torch.get_rng_state(), *(p.grad for p in model.parameters())]

    plain = run(lambda model: model(idx, targets))
    traced = run(lambda model: tracer.trace(model, idx, targets).output)
    assert all(torch.equal(a, b) for a, b in zip(plain, traced, strict=True))
    assert len(plain) == 3 + len(list(filled(config).parameters()))
