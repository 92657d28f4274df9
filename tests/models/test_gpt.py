"""GPT against a recording of minGPT, and the properties that any GPT must have."""

import copy
import doctest
import json
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from tracer import models
from tracer.models import GPT, GPTConfig

RECORD = json.loads((Path(__file__).parents[1] / "data" / "mingpt_record.json").read_text())
NANO = GPTConfig.named("gpt-nano", vocab_size=10, block_size=8)
PRIMES = GPTConfig(n_layer=2, n_head=3, n_embd=21, d_mlp=13, vocab_size=11, block_size=5)
EQUAL = GPTConfig(n_layer=2, n_head=4, n_embd=16, d_mlp=16, vocab_size=16, block_size=4)
both_sizes = pytest.mark.parametrize(("config", "B"), [(PRIMES, 2), (EQUAL, 4)], ids=["primes", "equal"])
both_norms = pytest.mark.parametrize("norm", ["pre", "post"])


def made(config: GPTConfig, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(config).eval()


def tokens(config: GPTConfig, B: int, seed: int = 1) -> Tensor:
    return torch.randint(config.vocab_size, (B, config.block_size), generator=torch.Generator().manual_seed(seed))


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# ------------------------------------------------------------------ the recording of minGPT


def filled(config: GPTConfig) -> GPT:
    """The weights that the recording sets by a formula, in float32."""
    model = GPT(config).eval()
    for j, (name, p) in enumerate(model.named_parameters()):
        wave = torch.sin(0.37 * torch.arange(p.numel(), dtype=torch.float64) + 1 + 0.11 * j)
        norm_weight = ".ln_" in name and name.endswith("weight")
        p.data.copy_((1 + 0.1 * wave if norm_weight else 0.5 * wave / math.sqrt(48)).view_as(p))
    return model


def recorded_loss(model: GPT) -> tuple[Tensor, Tensor]:
    wanted = RECORD["loss_rng_free"]
    logits, loss = model(torch.tensor(wanted["idx"]), torch.tensor(wanted["targets"]))
    return logits[0, 0], loss


def test_parameters_and_masks_are_those_of_mingpt():
    model = GPT(NANO)
    assert {name: list(p.shape) for name, p in model.named_parameters()} == RECORD["parameters"]
    assert list(dict(model.named_parameters())) == list(RECORD["parameters"])
    assert {name: list(b.shape) for name, b in model.named_buffers()} == RECORD["buffers_in_state_dict"]
    assert set(model.state_dict()) == {*RECORD["parameters"], *RECORD["buffers_in_state_dict"]}
    assert count(model) == RECORD["param_count"]["total"] == 86256
    assert count(model.transformer) == RECORD["param_count"]["transformer_only_as_printed_by_minGPT"]


def test_loss_without_random_numbers():
    """In float64 to the last digits; float32 to two units in the last place, which other processors may use up."""
    wanted = RECORD["loss_rng_free"]
    first, loss = recorded_loss(filled(NANO).double())
    assert abs(loss.item() - wanted["loss_float64"]) < 1e-14
    assert (first - torch.tensor(wanted["logits64_0_0"], dtype=torch.float64)).abs().max() < 1e-14
    _, loss = recorded_loss(filled(NANO))
    assert abs(loss.item() - wanted["loss_float32"]) <= 5e-7


@pytest.mark.parametrize("change", [{"activation": "gelu_erf"}, {"activation": "relu"}, {"norm": "post"}])
def test_another_model_has_another_loss(change):
    _, loss = recorded_loss(filled(replace(NANO, **change)).double())
    assert abs(loss.item() - RECORD["loss_rng_free"]["loss_float64"]) > 1e-7


def test_initialisation_draws_the_same_numbers_as_mingpt():
    wanted = RECORD["loss_seed_example"]
    logits, loss = made(NANO, seed=1234)(torch.tensor(wanted["idx"]), torch.tensor(wanted["targets"]))
    assert abs(loss.item() - wanted["loss"]) <= 5e-7
    assert (logits[0, 0] - torch.tensor(wanted["logits_0_0"])).abs().max() <= 1e-6


class Shapes(TorchFunctionMode):
    """Shapes of what each torch function returned, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[int]]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else [result]:
            if isinstance(tensor, Tensor):
                self.seen.append((func.__name__, list(tensor.shape)))
        return result


def test_every_shape_of_the_recording():
    """The calls of one block in the order of the code, each beside its line of the recording."""
    wanted = RECORD["loss_rng_free"]
    model, idx, targets = filled(NANO), torch.tensor(wanted["idx"]), torch.tensor(wanted["targets"])
    with Shapes() as shapes:
        model(idx, targets)
    part = "block.attn."
    heads = [part + "q before split into heads", None, part + "q"]
    block = [
        ("layer_norm", "block.ln_1"),
        ("linear", part + "c_attn (qkv fused)"),
        *[("split", heads[0])] * 3,
        *[call for q in ("q", "k", "v") for call in (("view", None), ("transpose", part + q))],
        ("transpose", part + "k^T"),
        ("matmul", part + "score (q@k^T/sqrt(hs))"),
        ("div", part + "score (q@k^T/sqrt(hs))"),
        ("__getitem__", part + "mask (tril, broadcast)"),
        ("eq", part + "mask (tril, broadcast)"),
        ("masked_fill", part + "score masked"),
        ("softmax", part + "weight (softmax)"),
        ("dropout", part + "weight (softmax)"),
        ("matmul", part + "head output (weight@v)"),
        *[("transpose", None), ("contiguous", None), ("view", part + "concat")],
        ("linear", part + "c_proj out"),
        ("dropout", part + "c_proj out"),
        ("add", "block.residual 1"),
        ("layer_norm", "block.ln_2"),
        ("linear", "block.mlp.c_fc"),
        ("gelu", "block.mlp.act (NewGELU/tanh)"),
        ("linear", "block.mlp.c_proj"),
        ("dropout", "block.mlp.c_proj"),
        ("add", "block.block out (residual 2)"),
    ]
    expected = [
        *[("arange", None), ("unsqueeze", None), ("embedding", "tok_emb"), ("embedding", "pos_emb")],
        *[("add", "x"), ("dropout", "x")],
        *block * 3,
        *[("layer_norm", "ln_f"), ("linear", "logits")],
        *[("view", "logits flattened for loss"), ("reshape", None), ("cross_entropy", "loss")],
    ]
    alias = {"__matmul__": "matmul", "__truediv__": "div", "__add__": "add", "__eq__": "eq"}
    calls = [(alias.get(name, name), shape) for name, shape in shapes.seen if name != "__get__"]
    assert [name for name, _ in calls] == [name for name, _ in expected]
    for (name, shape), (_, entry) in zip(calls, expected, strict=True):
        if entry is not None:
            assert shape == RECORD["shapes"][entry], (name, entry)
    assert {entry for _, entry in expected if entry} | {"idx"} == set(RECORD["shapes"])
    assert list(idx.shape) == RECORD["shapes"]["idx"]


# ------------------------------------------------------------------ sizes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # V C + block C + L (12 C² + 13 C) + 2 C: 38,597,376 + 786,432 + 12 * 7,087,872 + 1,536
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        # 31,087,104 + 393,216 + 12 * 7,087,872, and no norm at the end
        ("openai-gpt", 116_534_784),
        # 617,558,016 + 25,165,824 + 96 * 1,812,099,072 + 24,576
        ("gpt3", 174_604_259_328),
    ],
)
def test_published_sizes(name, parameters):
    with torch.device("meta"):
        assert count(GPT(GPTConfig.named(name))) == parameters


def test_heads_of_the_presets():
    """Heads of 64 features, but for minGPT's small ones, and GPT-3 and later."""
    heads = {name: GPTConfig.named(name).sizes["D"] for name in models.config.PRESETS}
    others = {"gpt-nano": 16, "gpt-micro": 32, "gpt-mini": 32, "gpt3": 128}
    others |= {name: 128 for name in ("llama-2-7b", "llama-3-8b", "llama-3.1-405b", "mixtral-8x7b")}
    assert heads == {name: 64 for name in heads} | others


def test_runs_on_the_meta_device_at_the_size_of_gpt3():
    config = GPTConfig.named("gpt3")
    with torch.device("meta"):
        idx = torch.zeros(2, 2048, dtype=torch.long)
        logits, loss = GPT(config)(idx, idx)
    assert logits.shape == (2, 2048, 50257) and loss.shape == () and logits.is_meta


@both_sizes
@both_norms
def test_axes_of_every_parameter_and_buffer(config, B, norm):
    model = GPT(replace(config, norm=norm))
    caches = {f"cache[{i}].{name}" for i in range(config.n_layer) for name in ("k", "v")}
    assert set(model.axes) == {"idx", "targets", *caches, *model.state_dict()}
    sizes = model.sizes | {"block_size": config.block_size, "3C": 3 * config.n_embd, "1": 1}
    for name, tensor in model.state_dict().items():
        assert tuple(sizes[axis] for axis in model.axes[name].split()) == tensor.shape, name
    wanted = {"transformer.wte.weight": "V C", "lm_head.weight": "V C", "transformer.wpe.weight": "block_size C"}
    assert wanted.items() <= model.axes.items()
    assert model.axes["transformer.h.1.mlp.c_fc.weight"] == "M C"


def test_sizes_by_letter():
    assert GPT(PRIMES).sizes == {"C": 21, "H": 3, "D": 7, "M": 13, "V": 11, "L": 2}


# ------------------------------------------------------------------ behaviour


@both_sizes
@both_norms
def test_future_changes_nothing(config, B, norm):
    model, idx = made(replace(config, norm=norm)).double(), tokens(config, B)
    logits, _ = model(idx)
    assert logits.shape == (B, config.block_size, config.vocab_size)
    for t in range(1, config.block_size):
        later = idx.clone()
        later[:, t:] = (later[:, t:] + 1) % config.vocab_size
        assert (model(later)[0] - logits)[:, :t].abs().max() < 1e-14
        assert (model(later)[0] - logits)[:, t:].abs().amax(dim=-1).min() > 1e-6
        assert (model(idx[:, :t])[0] - logits[:, :t]).abs().max() < 1e-14


def test_mask_one_off_lets_the_future_in():
    model, idx = made(PRIMES).double(), tokens(PRIMES, 2)
    for block in model.transformer.h:
        block.attn.bias.copy_(torch.ones_like(block.attn.bias).tril(1))
    later = idx.clone()
    later[:, 3] = (later[:, 3] + 1) % 11
    assert (model(later)[0] - model(idx)[0])[:, 2].abs().max() > 1e-6


@both_sizes
def test_loss_is_the_mean_of_the_positions_that_count(config, B):
    model, idx = made(config), tokens(config, B)
    targets = tokens(config, B, seed=2)
    targets[0, 0] = -1
    logits, loss = model(idx, targets)
    each = [
        -F.log_softmax(logits[b, t], dim=-1)[targets[b, t]]
        for b in range(B)
        for t in range(config.block_size)
        if targets[b, t] >= 0
    ]
    assert torch.allclose(loss, torch.stack(each).mean(), atol=1e-6)
    assert abs(loss.item() - math.log(config.vocab_size)) < 0.2  # untrained: no token is favoured


def test_targets_cut_from_longer_rows():
    ids = torch.randint(11, (2, 6))
    model = made(PRIMES)
    loss = model(ids[:, :-1], ids[:, 1:])[1]
    assert torch.equal(loss, model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())[1])


@both_sizes
@both_norms
@pytest.mark.parametrize("tied", [False, True])
def test_gradients_reach_every_parameter(config, B, norm, tied):
    model, idx = made(replace(config, norm=norm, tie_weights=tied)), tokens(config, B)
    model(idx, idx.roll(1))[1].backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all() and p.grad.abs().max() > 0, name


def test_tied_weights_are_one_table():
    model = made(replace(PRIMES, tie_weights=True))
    assert model.lm_head.weight is model.transformer.wte.weight
    assert count(model) == count(GPT(PRIMES)) - 11 * 21
    assert "lm_head.weight" in model.state_dict()


def test_post_norm_has_no_norm_at_the_end():
    pre, post = GPT(PRIMES), GPT(replace(PRIMES, norm="post"))
    assert set(pre.state_dict()) - set(post.state_dict()) == {"transformer.ln_f.weight", "transformer.ln_f.bias"}
    assert count(pre.transformer.h) == count(post.transformer.h)


def test_initialisation():
    model = made(GPTConfig.named("gpt-nano", n_embd=192, n_layer=2, vocab_size=500, block_size=300))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.any(), name
        elif ".ln_" in name:
            assert (p == 1).all(), name
        else:
            deviation = 0.02 / math.sqrt(2 * 2) if name.endswith("c_proj.weight") else 0.02
            assert abs(p.std().item() / deviation - 1) < 0.03, name
    again, other = made(model.config).state_dict(), made(model.config, seed=1).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in model.state_dict().items())
    assert not torch.equal(model.lm_head.weight, other["lm_head.weight"])


def test_dropout_works_in_training_alone():
    model, idx = made(replace(PRIMES, dropout=0.5)), tokens(PRIMES, 2)
    assert torch.equal(model(idx)[0], model(idx)[0])
    model.train()
    assert not torch.equal(model(idx)[0], model(idx)[0])


def test_loads_the_masks_of_mingpt_which_are_floats():
    model, idx = made(NANO), tokens(NANO, 2)
    state = {name: t.float() for name, t in model.state_dict().items()}
    for assign in (False, True):
        other = made(NANO, seed=1)
        other.load_state_dict(state, assign=assign)
        assert torch.equal(other(idx)[0], model(idx)[0])


def test_copies_and_saves():
    model, idx = made(PRIMES), tokens(PRIMES, 2)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(idx)[0], model(idx)[0]) and other.axes == model.axes


# ------------------------------------------------------------------ the other ways to run it


@both_sizes
def test_compiles_without_a_break(config, B):
    model, idx = made(config), tokens(config, B)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(idx, idx)[1], model(idx, idx)[1])


def test_runs_on_fake_tensors():
    with FakeTensorMode() as mode:
        model = GPT(PRIMES)
        idx = mode.from_tensor(tokens(PRIMES, 2))
        logits, loss = model(idx, idx)
    assert logits.shape == (2, 5, 11) and loss.shape == ()


def test_runs_under_vmap():
    model, idx = made(PRIMES), tokens(PRIMES, 3)
    rows = torch.vmap(lambda row: model(row.unsqueeze(0))[0])(idx)
    assert torch.allclose(rows.squeeze(1), model(idx)[0], atol=1e-6)


def test_int32_ids_and_bfloat16():
    model, idx = made(PRIMES), tokens(PRIMES, 2)
    assert torch.equal(model(idx.int())[0], model(idx)[0])
    low = model.bfloat16()(idx)[0]
    assert low.dtype == torch.bfloat16 and low.isfinite().all()


def test_a_batch_of_no_rows():
    assert made(PRIMES)(torch.zeros(0, 5, dtype=torch.long))[0].shape == (0, 5, 11)


def test_function_modes_see_the_model_and_not_the_look_at_its_input():
    with Shapes() as shapes:
        made(PRIMES)(tokens(PRIMES, 2))
    assert {name for name, _ in shapes.seen} & {"aminmax", "numel", "__int__", "item"} == set()


# ------------------------------------------------------------------ bad input

GOOD = torch.zeros(2, 5, dtype=torch.long)


def with_id(wrong: int) -> Tensor:
    ids = GOOD.clone()
    ids[1, 3] = wrong
    return ids


@pytest.mark.parametrize(
    ("idx", "targets", "error", "message"),
    [
        ([[1, 2]], None, TypeError, "idx is a list, but the model takes a tensor [B, T]. Use torch.tensor(idx)."),
        (
            GOOD.float(),
            None,
            TypeError,
            "idx holds torch.float32, but a token id is a row number of the embedding table: use idx.long() if the "
            "numbers are whole. Vectors [B, T, C] that are embedded already go into a Block, not into a GPT.",
        ),
        (
            GOOD[0],
            None,
            ValueError,
            "idx is [5], without a batch axis; the model takes [B, T]. Use idx.unsqueeze(0).",
        ),
        (
            GOOD[None],
            None,
            ValueError,
            "idx is [1, 2, 5], with 3 axes; the model takes [B, T], one sequence in each row.",
        ),
        (
            GOOD[:, :0],
            None,
            ValueError,
            "idx is [2, 0]: T=0, so there is no token to go on. Give at least one in each row.",
        ),
        (
            torch.zeros(2, 6, dtype=torch.long),
            None,
            ValueError,
            "T=6 positions, but block_size=5: the model was built for no more than that. "
            "Keep the last 5 positions, [:, -5:], or build with a larger block_size.",
        ),
        (
            with_id(11),
            None,
            IndexError,
            "idx[1, 3] is 11, but V=11: ids run from 0 to 10. "
            "Use the tokenizer that belongs to the model, or build it with a larger vocab_size.",
        ),
        (
            with_id(-1),
            None,
            IndexError,
            "idx[1, 3] is -1, but V=11: ids run from 0 to 10. "
            "Use the tokenizer that belongs to the model, or build it with a larger vocab_size.",
        ),
        (
            GOOD,
            with_id(-2),
            IndexError,
            "targets[1, 3] is -2, but V=11: ids run from 0 to 10, and -1 marks a position that the loss leaves out. "
            "Use the tokenizer that belongs to the model, or build it with a larger vocab_size.",
        ),
        (
            GOOD,
            GOOD[:, 1:],
            ValueError,
            "targets is [2, 4] but idx is [2, 5]: each position predicts one next token, so both are [B, T]. "
            "From one sequence: idx = ids[:, :-1], targets = ids[:, 1:].",
        ),
        (
            GOOD,
            GOOD.int(),
            TypeError,
            "targets is torch.int32, but the loss takes a tensor of torch.int64 ids. Use targets.long().",
        ),
    ],
)
def test_bad_batches(idx, targets, error, message):
    with pytest.raises(error) as caught:
        made(PRIMES)(idx, targets)
    assert type(caught.value) is error and str(caught.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_head": 5}, "n_embd=48 does not divide into n_head=5 heads"),
        ({"n_layer": 0}, "n_layer=0 cannot be a number of anything. Give a whole number of at least 1."),
        ({"n_head": 2.0}, "n_head=2.0 cannot be a number of anything"),
        ({"vocab_size": True}, "vocab_size=True cannot be a number of anything"),
        ({"block_size": -8}, "block_size=-8 cannot be a number of anything"),
        ({"d_mlp": 0}, "d_mlp=0 cannot be a number of anything"),
        ({"dropout": 1.0}, "dropout=1.0 is no share to leave out. Give a number from 0 to below 1."),
        ({"norm": "none"}, "norm='none' is not known. Choose one of: pre, post."),
        ({"activation": "swish"}, "activation='swish' is not known. Choose one of: gelu_tanh, gelu_erf, relu, swiglu."),
    ],
)
def test_bad_configs(change, message):
    with pytest.raises(ValueError) as caught:
        GPTConfig.named("gpt-nano", **change)
    assert str(caught.value).startswith(message)


def test_config_is_frozen_and_named():
    with pytest.raises(FrozenInstanceError):
        NANO.n_head = 4
    with pytest.raises(ValueError, match=r"name='gpt-5' is not known\. Choose one of: gpt-nano, gpt-micro"):
        GPTConfig.named("gpt-5")
    assert NANO.sizes == {"C": 48, "H": 3, "D": 16, "M": 192, "V": 10, "L": 3}
    assert replace(NANO, n_embd=60).sizes["M"] == 240  # 4 C follows C


@pytest.mark.parametrize(("H", "D"), [(1, 4), (5, 6), (8, 64)])
def test_width_follows_heads_or_is_held(H, D):
    free = GPTConfig.named("gpt-nano", n_head=H, n_embd=H * D)
    assert (free.sizes["C"], free.sizes["D"]) == (H * D, D)
    held = GPTConfig.named("gpt-nano", n_head=H, n_embd=40)
    assert (held.sizes["C"], held.sizes["D"]) == (40, 40 // H)


# ------------------------------------------------------------------ generation


@pytest.fixture
def speaker() -> GPT:
    """Weights large enough that the next token is no even chance."""
    model = made(PRIMES)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)
    return model


def test_greedy_takes_the_likeliest_and_keeps_the_prompt(speaker):
    prompt = tokens(PRIMES, 2)[:, :2]
    out = speaker.generate(prompt, 9, temperature=0)
    assert out.shape == (2, 11) and torch.equal(out[:, :2], prompt)
    for t in range(2, 11):  # the last 5 tokens are all that the model can see
        assert torch.equal(out[:, t], speaker(out[:, max(0, t - 5) : t])[0][:, -1].argmax(-1))
    assert torch.equal(out, speaker.generate(prompt, 9, top_k=1))
    assert torch.equal(prompt, speaker.generate(prompt, 0))


def test_seed_repeats_the_draw_and_leaves_the_global_generator(speaker):
    prompt = tokens(PRIMES, 2)[:, :1]
    state = torch.get_rng_state()
    first = speaker.generate(prompt, 20, seed=3)
    assert torch.equal(first, speaker.generate(prompt, 20, seed=3))
    assert not torch.equal(first, speaker.generate(prompt, 20, seed=4))
    assert torch.equal(state, torch.get_rng_state())
    speaker.generate(prompt, 1)
    assert not torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (2.0, 3), (1.0, 99)])
def test_draws_follow_the_distribution(speaker, temperature, top_k):
    prompt = torch.tensor([[4, 7]])
    logits = speaker(prompt)[0][0, -1] / temperature
    kept = logits.topk(min(top_k or 11, 11)).indices
    wanted = torch.zeros(11)
    wanted[kept] = F.softmax(logits[kept], dim=-1)
    drawn = speaker.generate(prompt.expand(4000, 2), 1, temperature=temperature, top_k=top_k, seed=0)[:, -1]
    share = torch.bincount(drawn, minlength=11) / 4000
    assert (share - wanted).abs().max() < 0.03
    assert not share[wanted == 0].any()


def test_generates_without_dropout_and_restores_each_mode(speaker):
    prompt = tokens(PRIMES, 2)[:, :2]
    wanted = speaker.generate(prompt, 6, temperature=0)
    speaker.transformer.drop.p = 0.9
    speaker.train()
    speaker.transformer.h[0].eval()
    modes = [module.training for module in speaker.modules()]
    with_grad = []
    speaker.lm_head.register_forward_hook(lambda _module, _args, logits: with_grad.append(logits.requires_grad))
    assert torch.equal(speaker.generate(prompt, 6, temperature=0), wanted)
    assert with_grad == [False] * 6
    assert [module.training for module in speaker.modules()] == modes


@pytest.mark.parametrize(
    ("prompt", "choices", "message"),
    [
        (GOOD[0], {}, "idx is [5], without a batch axis"),
        (GOOD[:, :0], {}, "idx is [2, 0]: T=0, so there is no token to go on."),
        (GOOD, {"max_new_tokens": -1}, "max_new_tokens=-1 is below 0. Give 0 or more."),
        (GOOD, {"temperature": -0.5}, "temperature=-0.5 is below 0. Give 0 or more."),
        (GOOD, {"top_k": 0}, "top_k=0 cannot be a number of anything."),
    ],
)
def test_bad_requests(speaker, prompt, choices, message):
    with pytest.raises(ValueError) as caught:
        speaker.generate(prompt, **({"max_new_tokens": 1} | choices))
    assert str(caught.value).startswith(message)


# ------------------------------------------------------------------ the package


def test_public_names_and_examples():
    assert all(hasattr(models, name) for name in models.__all__)
    for module in (models.attention, models.blocks, models.cache, models.config, models.gpt, models.positions):
        result = doctest.testmod(module)
        assert result.attempted > 0 and result.failed == 0, module.__name__


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_expert": 2, "n_chosen": 3, "activation": "swiglu"}, "n_chosen=3 experts for each token, but"),
        ({"n_expert": 2, "n_chosen": 0, "activation": "swiglu"}, "n_chosen=0 cannot be a number"),
        ({"n_expert": 0, "activation": "swiglu"}, "n_expert=0 cannot be a number"),
        ({"norm_eps": -1.0}, "norm_eps=-1.0 has to be a number above 0"),
        ({"norm_eps": "small"}, "norm_eps='small' has to be a number above 0"),
        ({"rotary_base": 0}, "rotary_base=0 has to be a number above 0"),
    ],
)
def test_choices_that_only_the_first_call_would_have_met(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(PRIMES, **changes)
