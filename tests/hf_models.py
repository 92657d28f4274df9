"""Hugging Face models built tiny from their configs, at sizes of choice: what the tests of names and the benchmark run.

A model is an entry of `MODELS`: its class, what its config says at given sizes, and which inputs it takes. Nothing is
downloaded: weights are random. `compare` is the relabelling test: names may not depend on sizes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

import tracer
from tracer.naming import size_of


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run, in the glossary's letters; `block`: rows of a position table, `patches` along an edge."""

    B: int = 2
    T: int = 5
    S: int = 7
    H: int = 6
    D: int = 8
    G: int = 3
    M: int = 76
    V: int = 101
    E: int = 5
    K: int = 2
    P: int = 9
    R: int = 3
    patches: int = 4
    block: int = 37
    layers: int = 2

    @property
    def C(self) -> int:
        """The model width."""
        return self.H * self.D


DISTINCT = Sizes()
"""No two axes alike: what names should be."""
OTHERS = {
    "distinct": Sizes(B=3, T=11, S=13, H=10, D=16, G=5, M=92, V=71, E=7, K=3, P=5, patches=6, block=53),
    "equal": Sizes(B=8, T=8, S=8, H=8, D=8, G=4, M=64, V=64, E=8, K=4, P=8, R=8, patches=8, block=64),
    "T = D": Sizes(B=6, T=8, S=8, P=8, patches=2),
    "T = C": Sizes(B=8, T=32, S=32, H=4, D=8, G=2, M=64, V=32, E=8, K=2, P=8, patches=8, block=40),
    "T = 1": Sizes(T=1, S=1),
    "B = 1": Sizes(B=1),
    "B = T = 1": Sizes(B=1, T=1, S=1),
    "uneven": Sizes(B=3, T=6, S=9, H=4, D=24, G=2, M=44, V=67, E=6, K=3, P=3, patches=5, block=41),
}
"""Sizes to run again at: none of them may change a name."""


class Model(NamedTuple):
    """One model of the table; `kind` says which inputs it takes and how its share is counted."""

    name: str
    cls: str
    kind: str
    config: Callable[[Sizes], dict[str, Any]]


def usual(s: Sizes) -> dict[str, Any]:
    """Fields under the names that most configs share."""
    return {
        "hidden_size": s.C,
        "num_attention_heads": s.H,
        "num_hidden_layers": s.layers,
        "intermediate_size": s.M,
        "vocab_size": s.V,
        "max_position_embeddings": s.block,
    }


def grouped(s: Sizes) -> dict[str, Any]:
    """The usual fields, with fewer heads for keys and values."""
    return {**usual(s), "num_key_value_heads": s.G, "head_dim": s.D}


def routed(s: Sizes) -> dict[str, Any]:
    """Grouped heads and a mixture of experts."""
    return {**grouped(s), "num_local_experts": s.E, "num_experts_per_tok": s.K}


def gpt2(s: Sizes) -> dict[str, Any]:
    """GPT-2's own words."""
    return {
        "n_embd": s.C, "n_head": s.H, "n_layer": s.layers, "vocab_size": s.V, "n_positions": s.block, "n_inner": s.M,
    }  # fmt: skip


def encoder_decoder(s: Sizes) -> dict[str, Any]:
    """The fields of BART and its relatives."""
    return {
        "d_model": s.C, "vocab_size": s.V, "max_position_embeddings": s.block, "encoder_layers": s.layers,
        "decoder_layers": s.layers, "encoder_attention_heads": s.H, "decoder_attention_heads": s.H,
        "encoder_ffn_dim": s.M, "decoder_ffn_dim": s.M, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1, "forced_eos_token_id": None,
    }  # fmt: skip


def t5(s: Sizes) -> dict[str, Any]:
    """T5: the width of a head is a field of its own."""
    return {
        "d_model": s.C, "d_kv": s.D, "d_ff": s.M, "num_layers": s.layers, "num_heads": s.H, "vocab_size": s.V,
        "decoder_start_token_id": 0, "num_decoder_layers": s.layers,
    }  # fmt: skip


def image(s: Sizes) -> dict[str, Any]:
    """Vision transformers: square images of `patches` by `patches` patches."""
    fields = usual(s)
    del fields["vocab_size"], fields["max_position_embeddings"]
    return {**fields, "image_size": s.patches * s.P, "patch_size": s.P, "num_channels": s.R}


def swin(s: Sizes) -> dict[str, Any]:
    """Swin: windows over a map that shrinks."""
    return {
        "image_size": 16 * s.P, "patch_size": s.P, "num_channels": s.R, "embed_dim": s.C, "depths": [2, 2],
        "num_heads": [s.H, s.H], "window_size": 4,
    }  # fmt: skip


def whisper(s: Sizes) -> dict[str, Any]:
    """Whisper: log-mel features in, twice as many frames as positions of the encoder."""
    return {
        **encoder_decoder(s), "num_mel_bins": s.P * 2 + 1, "max_source_positions": s.S * 2,
        "max_target_positions": s.block,
    }  # fmt: skip


def wav2vec2(s: Sizes) -> dict[str, Any]:
    """Wav2Vec 2.0: convolutions over the waveform."""
    fields = usual(s)
    del fields["max_position_embeddings"]
    return {
        **fields, "conv_dim": (s.P, s.P), "conv_kernel": (5, 3), "conv_stride": (3, 2), "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "mask_time_prob": 0.0,
    }  # fmt: skip


def mamba(s: Sizes) -> dict[str, Any]:
    """Mamba: no heads; a state for each channel."""
    return {
        "hidden_size": s.C, "vocab_size": s.V, "num_hidden_layers": s.layers, "state_size": s.D + 1, "conv_kernel": 4,
        "time_step_rank": s.H + 1, "expand": 2,
    }  # fmt: skip


def _with(fields: Callable[[Sizes], dict[str, Any]], **more: Any) -> Callable[[Sizes], dict[str, Any]]:
    return lambda s: {**fields(s), **{k: v(s) if callable(v) else v for k, v in more.items()}}


MODELS: dict[str, Model] = {
    m.name: m
    for m in (
        Model("gpt2", "GPT2LMHeadModel", "decoder", gpt2),
        Model("gpt_neo", "GPTNeoForCausalLM", "decoder", lambda s: {
            "hidden_size": s.C, "num_heads": s.H, "num_layers": 2 * s.layers,
            "attention_types": [[["global", "local"], s.layers]],
            "vocab_size": s.V, "max_position_embeddings": s.block, "intermediate_size": s.M, "window_size": 3}),
        Model("gpt_neox", "GPTNeoXForCausalLM", "decoder", usual),
        Model("gptj", "GPTJForCausalLM", "decoder", _with(gpt2, rotary_dim=lambda s: s.D // 4 * 2)),
        Model("gpt_bigcode", "GPTBigCodeForCausalLM", "decoder", gpt2),
        Model("codegen", "CodeGenForCausalLM", "decoder", _with(  # heads in fours
            gpt2, rotary_dim=lambda s: s.D // 2, n_head=lambda s: s.H // 4 * 4, n_embd=lambda s: s.H // 4 * 4 * s.D)),
        Model("openai-gpt", "OpenAIGPTLMHeadModel", "decoder", lambda s: {
            k: v for k, v in gpt2(s).items() if k != "n_inner"}),
        Model("llama", "LlamaForCausalLM", "decoder", grouped),
        Model("mistral", "MistralForCausalLM", "decoder", _with(grouped, sliding_window=3)),
        Model("qwen2", "Qwen2ForCausalLM", "decoder", grouped),
        Model("qwen3", "Qwen3ForCausalLM", "decoder", grouped),
        Model("qwen3 wide heads", "Qwen3ForCausalLM", "decoder", _with(grouped, head_dim=lambda s: 2 * s.D + 2)),
        Model("qwen2_moe", "Qwen2MoeForCausalLM", "decoder", _with(
            grouped, num_experts=lambda s: s.E, num_experts_per_tok=lambda s: s.K,
            moe_intermediate_size=lambda s: s.M + 4, shared_expert_intermediate_size=lambda s: s.M + 8)),
        Model("gemma", "GemmaForCausalLM", "decoder", grouped),
        Model("gemma2", "Gemma2ForCausalLM", "decoder", _with(grouped, sliding_window=3)),
        Model("gemma3", "Gemma3ForCausalLM", "decoder", _with(grouped, sliding_window=3)),
        Model("mixtral", "MixtralForCausalLM", "decoder", routed),
        Model("olmo", "OlmoForCausalLM", "decoder", grouped),
        Model("olmo2", "Olmo2ForCausalLM", "decoder", grouped),
        Model("phi", "PhiForCausalLM", "decoder", _with(usual, num_key_value_heads=lambda s: s.H)),
        Model("phi3", "Phi3ForCausalLM", "decoder", _with(grouped, pad_token_id=0)),
        Model("falcon", "FalconForCausalLM", "decoder", _with(usual, ffn_hidden_size=lambda s: s.M)),
        Model("falcon new", "FalconForCausalLM", "decoder", _with(
            usual, ffn_hidden_size=lambda s: s.M, new_decoder_architecture=True, num_kv_heads=lambda s: s.G)),
        Model("falcon alibi", "FalconForCausalLM", "decoder", _with(
            usual, ffn_hidden_size=lambda s: s.M, alibi=True, multi_query=False)),
        Model("opt", "OPTForCausalLM", "decoder", lambda s: {
            "hidden_size": s.C, "num_attention_heads": s.H, "num_hidden_layers": s.layers, "ffn_dim": s.M,
            "vocab_size": s.V, "max_position_embeddings": s.block, "word_embed_proj_dim": s.C}),
        Model("bloom", "BloomForCausalLM", "decoder", lambda s: {
            "hidden_size": s.C, "n_head": s.H, "n_layer": s.layers, "vocab_size": s.V}),
        Model("mpt", "MptForCausalLM", "decoder", lambda s: {
            "d_model": s.C, "n_heads": s.H, "n_layers": s.layers, "vocab_size": s.V, "max_seq_len": s.block}),
        Model("stablelm", "StableLmForCausalLM", "decoder", grouped),
        Model("starcoder2", "Starcoder2ForCausalLM", "decoder", grouped),
        Model("cohere", "CohereForCausalLM", "decoder", grouped),
        Model("granite", "GraniteForCausalLM", "decoder", grouped),
        Model("glm", "GlmForCausalLM", "decoder", _with(grouped, pad_token_id=0)),
        Model("smollm3", "SmolLM3ForCausalLM", "decoder", _with(grouped, pad_token_id=0)),
        Model("gpt_oss", "GptOssForCausalLM", "decoder", _with(routed, sliding_window=3)),
        Model("bert", "BertModel", "encoder", usual),
        Model("roberta", "RobertaModel", "encoder", usual),
        Model("distilbert", "DistilBertModel", "encoder", lambda s: {
            "dim": s.C, "n_heads": s.H, "n_layers": s.layers, "hidden_dim": s.M, "vocab_size": s.V,
            "max_position_embeddings": s.block}),
        Model("albert", "AlbertModel", "encoder", _with(usual, embedding_size=lambda s: s.C // 2 + 1)),
        Model("deberta", "DebertaModel", "encoder", usual),
        Model("deberta relative", "DebertaModel", "encoder", _with(
            usual, relative_attention=True, pos_att_type=["c2p", "p2c"])),
        Model("deberta-v2", "DebertaV2Model", "encoder", usual),
        Model("deberta-v2 relative", "DebertaV2Model", "encoder", _with(
            usual, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4)),
        Model("electra", "ElectraModel", "encoder", _with(usual, embedding_size=lambda s: s.C // 2 + 1)),
        Model("mpnet", "MPNetModel", "encoder", usual),
        Model("modernbert", "ModernBertModel", "encoder", _with(usual, pad_token_id=0, local_attention=4)),
        Model("xlnet", "XLNetModel", "encoder", lambda s: {
            "d_model": s.C, "n_layer": s.layers, "n_head": s.H, "d_inner": s.M, "vocab_size": s.V}),
        Model("clip text", "CLIPTextModel", "encoder", usual),
        Model("t5", "T5ForConditionalGeneration", "pair", t5),
        Model("bart", "BartForConditionalGeneration", "pair", encoder_decoder),
        Model("marian", "MarianMTModel", "pair", encoder_decoder),
        Model("pegasus", "PegasusForConditionalGeneration", "pair", encoder_decoder),
        Model("mbart", "MBartForConditionalGeneration", "pair", encoder_decoder),
        Model("vit", "ViTModel", "image", image),
        Model("deit", "DeiTModel", "image", image),
        Model("dinov2", "Dinov2Model", "image", _with(image, mlp_ratio=3)),
        Model("siglip vision", "SiglipVisionModel", "image", image),
        Model("clip vision", "CLIPVisionModel", "image", image),
        Model("swin", "SwinModel", "image", swin),
        Model("clip", "CLIPModel", "both", lambda s: {
            "text_config": usual(s), "vision_config": image(s), "projection_dim": s.C + 5}),
        Model("whisper", "WhisperForConditionalGeneration", "features", whisper),
        Model("wav2vec2", "Wav2Vec2Model", "wave", wav2vec2),
        Model("mamba", "MambaForCausalLM", "state", mamba),
    )
}  # fmt: skip


def build(name: str, sizes: Sizes, attention: str = "eager") -> torch.nn.Module:
    """Return the model with random weights, in eval mode; `attention` is the implementation where it has a choice."""
    import transformers  # noqa: PLC0415 - the tests run without it too

    entry = MODELS[name]
    cls = getattr(transformers, entry.cls)
    torch.manual_seed(0)
    config = cls.config_class(**entry.config(sizes))
    try:
        model = cls._from_config(config, attn_implementation=attention)
    except ValueError:  # the model has only one implementation
        model = cls._from_config(config, attn_implementation="eager")
    return model.eval()


def inputs(name: str, sizes: Sizes, training: bool = False) -> dict[str, torch.Tensor]:
    """Return what the model is called with, by keyword; for `training` with a padding mask and labels where it can."""
    found = _inputs(name, sizes)
    ids = found.get("decoder_input_ids", found.get("input_ids"))
    if training and ids is not None:
        mask = torch.ones_like(found["input_ids"]) if "input_ids" in found else None
        if mask is not None and mask.shape[1] > 2:
            mask[0, -2:] = 0
        if mask is not None:
            found["attention_mask"] = mask
        if MODELS[name].kind in ("decoder", "state", "pair", "features"):
            found["labels"] = ids.clone()
    return found


def _inputs(name: str, sizes: Sizes) -> dict[str, torch.Tensor]:
    s, kind = sizes, MODELS[name].kind
    torch.manual_seed(1)

    def ids(n: int) -> torch.Tensor:
        return torch.randint(3, s.V, (s.B, n))

    edge = s.patches * s.P if "swin" not in name else 16 * s.P
    if kind in ("decoder", "encoder", "state"):
        return {"input_ids": ids(s.T)}
    if kind == "pair":
        return {"input_ids": ids(s.S), "decoder_input_ids": ids(s.T)}
    if kind == "image":
        return {"pixel_values": torch.randn(s.B, s.R, edge, edge)}
    if kind == "both":
        return {"input_ids": ids(s.T), "pixel_values": torch.randn(s.B, s.R, edge, edge)}
    if kind == "features":
        return {"input_features": torch.randn(s.B, 2 * s.P + 1, 4 * s.S), "decoder_input_ids": ids(s.T)}
    return {"input_values": torch.randn(s.B, 6 * s.T + 19)}


def run(name: str, sizes: Sizes, attention: str = "eager", training: bool = False) -> tracer.Trace:
    """Trace the model once, without any annotation."""
    model = build(name, sizes, attention).train(training)
    with torch.set_grad_enabled(training):
        return tracer.trace(model, **inputs(name, sizes, training))


# ------------------------------------------------------------------ what is asked of names


def share(trace: tracer.Trace) -> tuple[int, int]:
    """Return how many axes of outputs are named, and how many there are."""
    axes = [a for op in trace for t in op.outputs for a in t.axes]
    return sum(a != "?" for a in axes), len(axes)


def false_sizes(trace: tracer.Trace) -> list[str]:
    """Return every name that does not come out at the size of its axis.

    Where a symbol has other sizes in the course of a run (T grows with a cache) only the last is known, so that a test
    of one call alone can ask.
    """
    return [
        f"{op.index} {op.name} {t.label} {t.shape}"
        for op in trace
        for t in (*op.inputs, *op.outputs)
        for a, n in zip(t.axes, t.shape, strict=True)
        if a != "?" and size_of(a, trace.sizes) != n
    ]


def by_place(trace: tracer.Trace) -> Iterator[tuple[Any, tracer.Op]]:
    """Yield each operation with its key: module, line, name and how often that came before."""
    count: dict[Any, int] = {}
    for op in trace:
        key = (op.module, op.source and op.source.file, op.source and op.source.line, op.name)
        count[key] = count.get(key, -1) + 1
        yield (*key, count[key]), op


def compare(reference: Mapping[Any, tracer.Op], other: tracer.Trace) -> list[str]:
    """Return what other sizes changed: every axis that has another name than at the reference's, and not `?`."""
    wrong = []
    for key, op in by_place(other):
        same = reference.get(key)
        if same is None or len(op.inputs) != len(same.inputs):  # no mask where nothing is padded
            continue
        for a, b in zip((*op.inputs, *op.outputs), (*same.inputs, *same.outputs), strict=True):
            if len(a.axes) == len(b.axes) and any(
                x != y and "?" not in (x, y) for x, y in zip(a.axes, b.axes, strict=True)
            ):
                place = op.source.place if op.source else "?"
                wrong.append(f"{op.module} {place} {op.name}: {a.label} {a.shape} is {b.label} {b.shape} elsewhere")
    return wrong


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of an output: in dicts, tuples, dataclasses and caches."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif hasattr(value, "__dict__"):
        yield from leaves(vars(value))


def same(a: Any, b: Any) -> bool:
    """Tell whether two outputs hold the same numbers, bit for bit."""
    pairs = list(zip(leaves(a), leaves(b), strict=True))
    return bool(pairs) and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)
