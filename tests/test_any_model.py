"""Models that declare nothing: Hugging Face's, built tiny from their configs, are named by config and code alone."""

import dataclasses
from functools import cache
from statistics import fmean

import pytest
import torch
from hf_models import (
    DISTINCT,
    MODELS,
    OTHERS,
    build,
    by_place,
    compare,
    false_sizes,
    inputs,
    leaves,
    run,
    same,
    share,
)

import tracer

transformers = pytest.importorskip("transformers", reason="transformers is not installed: its models are not traced")
pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers itself warns of is not ours
RELABELLED = (
    "gpt2", "gpt_neox", "llama", "phi3", "mixtral", "falcon", "bert", "xlnet", "bart", "vit", "whisper", "mamba",
)  # fmt: skip


@pytest.fixture(scope="module")
def traces():
    """Return every model's trace at distinct sizes, with fused attention."""
    return {name: run(name, DISTINCT, "sdpa") for name in MODELS}


@cache
def eager(name):
    """Return the operations of one model at distinct sizes, by place, with its attention spelled out."""
    return dict(by_place(run(name, DISTINCT)))


@pytest.mark.parametrize("name", MODELS)
def test_names_come_out_at_the_sizes_of_their_axes_and_nothing_is_warned_of(traces, name):
    assert false_sizes(traces[name]) == []
    on_purpose = [w for w in traces[name].warnings if "rel_attn" not in w]  # XLNet shifts by a view across axes
    assert on_purpose == []


@pytest.mark.parametrize("name", MODELS)
def test_tracing_leaves_the_output_as_it_is(traces, name):
    with torch.no_grad():
        plain = build(name, DISTINCT, "sdpa")(**inputs(name, DISTINCT))
    assert same(traces[name].output, plain)


def test_most_axes_are_named(traces):
    shares = {name: 100 * named / count for name, (named, count) in ((n, share(t)) for n, t in traces.items())}
    assert fmean(s for n, s in shares.items() if MODELS[n].kind == "decoder") >= 97
    assert fmean(s for n, s in shares.items() if MODELS[n].kind != "decoder") >= 92


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", RELABELLED)
def test_no_size_changes_a_name(name, other):
    again = run(name, OTHERS[other])
    assert compare(eager(name), again) == []
    assert false_sizes(again) == []


@pytest.mark.parametrize("name", ["llama", "bart", "phi3"])
def test_a_training_step_is_named_too(name):
    reference = run(name, DISTINCT, "sdpa", training=True)
    assert false_sizes(reference) == []
    assert compare(dict(by_place(reference)), run(name, OTHERS["equal"], "sdpa", training=True)) == []


def test_the_comparison_finds_a_name_that_sizes_change():
    def scores(x):
        return x @ x.transpose(1, 2)

    x = torch.rand(2, 5, 6)
    right, wrong, vague = (tracer.trace(scores, x, axes=[a]) for a in ("B T C", "B C T", "B ? C"))
    assert compare(dict(by_place(right)), right) == []
    assert compare(dict(by_place(right)), vague) == []
    assert len(compare(dict(by_place(right)), wrong)) == 5  # transpose: what comes and what goes; matmul: two and one


def labels(trace, name, module):
    return [op.outputs[0].label for op in trace if op.name == name and op.module == module]


def test_layouts_of_fused_maps_are_named_by_the_code_that_cuts_them(traces):
    assert labels(traces["phi3"], "linear", "model.layers.0.self_attn.qkv_proj") == ["[B, T, C+(2 G D)]"]
    assert labels(traces["gpt_neox"], "linear", "gpt_neox.layers.0.attention.query_key_value") == ["[B, T, 3C]"]
    falcon = labels(traces["falcon new"], "view", "transformer.h.0.self_attention")
    assert falcon[0] == "[B, T, G, ?=4, D]"  # the heads of a group stand beside their key and value


def test_parts_of_heads_that_are_turned_are_parts_by_the_config(traces):
    cut = labels(traces["gpt_neox"], "getitem", "gpt_neox.layers.0.attention")
    assert cut[:4] == ["[B, H, T, D/4]", "[B, H, T, 3D/4]"] * 2
    joined = labels(traces["gpt_neox"], "cat", "gpt_neox.layers.0.attention")
    assert joined[-1] == "[B, H, T, D]"


def test_an_image_becomes_patches(traces):
    t = traces["vit"]
    assert [op.outputs[0].label for op in t if op.name in ("conv2d", "flatten", "transpose", "cat")][:4] == [
        "[B, C, Y/P, X/P]", "[B, C, N]", "[B, N, C]", "[B, 1+N, C]",
    ]  # fmt: skip
    assert {k: t.sizes[k] for k in "RPYXN"} == {"R": 3, "P": 9, "Y": 36, "X": 36, "N": 16}


def test_positions_that_attend_to_themselves_are_named_where_no_ids_are(traces):
    encoder = labels(traces["whisper"], "scaled_dot_product_attention", "model.encoder.layers.0.self_attn")
    across = labels(traces["whisper"], "scaled_dot_product_attention", "model.decoder.layers.0.encoder_attn")
    assert (encoder, across) == (["[B, H, S, D]"], ["[B, H, T, D]"])
    keys = [op.inputs[1].label for op in traces["whisper"] if op.module == "model.decoder.layers.0.encoder_attn"
            and op.name == "scaled_dot_product_attention"]  # fmt: skip
    assert keys == ["[B, H, S, D]"]


def test_a_cache_is_s_and_what_is_new_t():
    model, ids = build("llama", DISTINCT), inputs("llama", DISTINCT)["input_ids"]
    with torch.no_grad():
        past = model(ids, use_cache=True).past_key_values
        t = tracer.trace(model, input_ids=ids[:, :2], past_key_values=past)
    joined = labels(t, "cat", "model.layers.0.self_attn")
    assert joined[-2:] == ["[B, G, S+T, D]"] * 2
    assert "[B, H, T, S+T]" in labels(t, "softmax", "model.layers.0.self_attn")
    assert (t.sizes["S"], t.sizes["T"]) == (5, 2)
    assert false_sizes(t) == []


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_generation_is_the_same_traced_and_no_name_is_wrong(name):
    model, given = build(name, DISTINCT), inputs(name, DISTINCT)
    ids = given["input_ids"]
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        plain = model.generate(ids, **options)
        t = tracer.trace(model.generate, ids, **options)
    assert torch.equal(t.output, plain)
    fixed = {"B": 2, "C": 48, "H": 6, "G": 3, "D": 8, "V": 101, "M": 76}  # T and S grow
    met = {(a, n) for op in t for o in op.outputs for a, n in zip(o.axes, o.shape, strict=True) if a in fixed}
    assert met <= fixed.items()
    assert len(met) > 4


def test_gradients_are_those_of_the_untraced_step():
    steps = []
    for traced in (False, True):
        model = build("gpt2", DISTINCT).train()
        given = inputs("gpt2", DISTINCT, training=True)
        torch.manual_seed(3)  # dropout
        out = tracer.trace(model, **given).output if traced else model(**given)
        out.loss.backward()
        steps.append([out.loss.detach(), *(p.grad for p in model.parameters())])
    assert len(steps[0]) > 20
    assert all(torch.equal(a, b) for a, b in zip(*steps, strict=True))


def test_outputs_come_back_as_their_own_kind(traces):
    output = traces["bert"].output
    assert type(output).__name__ == "BaseModelOutputWithPoolingAndCrossAttentions"
    assert dataclasses.is_dataclass(output)
    assert [tuple(x.shape) for x in leaves(output)] == [(2, 5, 48), (2, 48)]


@dataclasses.dataclass
class Batch:
    input_ids: torch.Tensor
    attention_mask: torch.Tensor


CONTAINERS = {
    "dict": lambda ids, mask: {"input_ids": ids, "attention_mask": mask},
    "list": lambda ids, mask: [ids, mask],
    "dataclass": Batch,
    "model output": lambda ids, mask: transformers.utils.ModelOutput(input_ids=ids, attention_mask=mask),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_inputs_may_come_in_a_container(kind):
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build("gpt2", DISTINCT)
            self.config = self.inner.config

        def forward(self, batch):
            if isinstance(batch, list):
                ids, mask = batch
            elif isinstance(batch, Batch):
                ids, mask = batch.input_ids, batch.attention_mask
            else:
                ids, mask = batch["input_ids"], batch["attention_mask"]
            return [self.inner(input_ids=ids, attention_mask=mask)["logits"]]

    ids = inputs("gpt2", DISTINCT)["input_ids"]
    t = tracer.trace(Wrapped().eval(), CONTAINERS[kind](ids, torch.ones_like(ids)))
    assert t[-1].outputs[0].label == "[B, T, V]"
    assert torch.equal(t.output[0], build("gpt2", DISTINCT)(input_ids=ids).logits)


def test_an_image_in_a_dict_is_one_too():
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build("vit", DISTINCT)
            self.config = self.inner.config

        def forward(self, batch):
            return self.inner(**batch)

    t = tracer.trace(Wrapped().eval(), inputs("vit", DISTINCT))
    assert t.output.last_hidden_state is not None
    assert t[-1].inputs[0].axes[0] == "B"
    assert "[B, 1+N, C]" in [o.label for op in t for o in op.outputs]


def test_layers_that_share_their_weights_are_named_at_each_use(traces):
    used = [op for op in traces["albert"] if op.name == "linear" and op.module.endswith("attention.q_proj")]
    used = used or [op for op in traces["albert"] if op.name == "linear" and "attention.query" in op.module]
    assert len(used) == DISTINCT.layers
    assert {op.module for op in used} == {used[0].module}
    assert {op.outputs[0].label for op in used} == {"[B, T, C]"}
