"""Reads trained weights from files: which layout it is, which config it means, and our names for its tensors.

Files are read as numbers alone: a pickle that wants to run code is refused. What is fetched from the hub is moved to
its place when it is whole.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from .config import GPTConfig

__all__ = ["load", "read_checkpoint"]

State = dict[str, Tensor]
Model = TypeVar("Model", bound=nn.Module)

HUB = "https://huggingface.co/{name}/resolve/main/{file}"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def read_checkpoint(source: str | Path, changes: Mapping[str, Any]) -> tuple[GPTConfig, State]:
    """Return the config of a checkpoint, with `changes`, and its tensors under our names.

    Raises:
        FileNotFoundError, ValueError: as `GPT.from_pretrained`.
    """
    said, found = _open(Path(source), str(source))
    # nanoGPT keeps the weights beside what it was built with; training loops of others often do so too.
    inner = next((found[key] for key in ("model", "state_dict", "model_state_dict") if key in found), found)
    if not isinstance(inner, Mapping) or not all(
        isinstance(t, Tensor) and isinstance(n, str) for n, t in inner.items()
    ):
        raise ValueError(f"{source} holds no table of tensors by name, so there is no model in it to read.")
    state = {re.sub(r"^(_orig_mod\.|module\.)+", "", name): tensor for name, tensor in inner.items()}
    for name, tensor in state.items():
        if (
            tensor.layout != torch.strided
            or tensor.is_meta
            or not (tensor.is_floating_point() or _is_mask(name, tensor))
        ):
            kind = "without numbers" if tensor.is_meta else f"{tensor.layout} of {tensor.dtype}"
            raise ValueError(f"{source}: {name} is {kind}, but a parameter is a whole array of fractions.")
    if any("self_attn.q_proj" in name for name in state):
        state = _from_llama(state)
        fields = _llama_config(said, source)
        tied = bool(said.get("tie_word_embeddings", False))
    elif any(name.endswith("attn.c_attn.weight") for name in state):
        state = {name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}": t
                 for name, t in state.items() if not _is_mask(name, t)}  # fmt: skip
        fields = _gpt_config(state, said, found.get("model_args"), source, changes)
        tied = bool(said.get("tie_word_embeddings", True))
        state = _upright(state)
    elif any("attn.c_q.weight" in name for name in state):
        raise ValueError(
            f"{source} has the names of tracer.models itself, and no config. Build the model from its own config and "
            "give the file to load_state_dict."
        )
    else:
        names = ", ".join(list(state)[:3]) or "no tensors"
        raise ValueError(
            f"{source} has a layout that is not known: it begins with {names}. Known are those of GPT-2, minGPT and "
            "nanoGPT (attn.c_attn), and of Llama, Mistral, Qwen2 and Mixtral (self_attn.q_proj)."
        )
    table = _matrix(state, "transformer.wte.weight", source)
    if "lm_head.weight" not in state and not tied:
        raise ValueError(f"{source}: lm_head.weight is missing, and its config does not tie it to the embeddings.")
    state.setdefault("lm_head.weight", table)
    fields["tie_weights"] = torch.equal(state["lm_head.weight"], table)
    return GPTConfig(**(fields | dict(changes))), state


def load(model: Model, state: State) -> Model:
    """Give a model that was built on the meta device the tensors of `state`; return it in evaluation mode."""
    wanted = model.state_dict()
    block_size = getattr(model, "config").block_size  # noqa: B009
    for name, tensor in wanted.items():
        q, k, v = (name.replace("c_attn", part) for part in ("c_q", "c_k", "c_v"))
        if "c_attn" in name and {q, k, v} <= state.keys() and len({state[n].shape for n in (q, k, v)}) == 1:
            state[name] = torch.cat([state.pop(q), state.pop(k), state.pop(v)])  # 3 x [C, C] -> [3C, C]
        elif _is_mask(name, tensor):
            state[name] = torch.ones(block_size, block_size, dtype=torch.bool).tril()[None, None]
    wrong = [f"{name} is missing" for name in wanted if name not in state]
    wrong += [f"{name} has no place in it" for name in state if name not in wanted]
    wrong += [
        f"{name} is {list(state[name].shape)} for {list(wanted[name].shape)}"
        for name in wanted
        if name in state and state[name].shape != wanted[name].shape
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(f"the weights do not fit the model that their config describes: {', '.join(wrong[:3])}{more}.")
    model.load_state_dict(state, assign=True)
    whole: Any = model
    if whole.config.tie_weights:
        whole.lm_head.weight = whole.transformer.wte.weight
    return model.eval()


# ------------------------------------------------------------------ files


def _open(path: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what config.json says, or nothing, and what the file or files of weights hold."""
    if path.is_dir():
        folder, weights = path, _weights_in(path)
    elif path.is_file():
        folder, weights = path.parent, path
    elif re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and path.suffix not in SUFFIXES:
        folder = _fetched(name)
        weights = _weights_in(folder)
    else:
        raise FileNotFoundError(f"{name} is neither a folder nor a file here.")
    config = folder / "config.json"
    return (_json(config) if config.is_file() else {}), _tensors(weights)


def _weights_in(folder: Path) -> Path:
    known = [folder / file for file in WEIGHTS if (folder / file).is_file()]
    others = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not known and len(others) != 1:
        held = f"{len(others)} files of weights, and none of the usual name" if others else "no file of weights"
        raise FileNotFoundError(f"{folder} holds {held} ({', '.join(WEIGHTS)}). Give the file itself.")
    return (known or others)[0]


def _tensors(path: Path) -> dict[str, Any]:
    if path.name.endswith(".index.json"):
        return {name: tensor for part in _parts(path) for name, tensor in _tensors(path.parent / part).items()}
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, or no file.")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read: it is cut short, or no safetensors file ({error}).") from None
    except PermissionError:
        raise
    except Exception as error:  # broken bytes end in errors of every kind
        if "Unsupported" in str(error) or "GLOBAL" in str(error):
            raise ValueError(
                f"{path} holds more than numbers: reading it would run code that it brings along. "
                "Have the weights saved anew, as a state_dict or a safetensors file."
            ) from None
        raise ValueError(f"{path} cannot be read: it is cut short, or was not written by torch.save.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a table of tensors by name.")
    return found


def _parts(index: Path) -> list[str]:
    """Return the names of the files beside `index` that a large model lies in."""
    files = _json(index).get("weight_map")
    names = list(files.values()) if isinstance(files, dict) else []
    # A path could lead out of the folder, also when it is fetched from the hub.
    if not names or not all(isinstance(n, str) and Path(n).name == n and n.endswith(SUFFIXES) for n in names):
        raise ValueError(f"{index} does not say in which files beside it the tensors lie.")
    return sorted(set(names))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not fields by name.")
    return found


def _fetched(name: str) -> Path:
    """Return the folder that a model of the hub lies in, after fetching what is not there yet."""
    folder = Path(torch.hub.get_dir()) / "shape-tracer" / name.replace("/", "--")
    missing = f"{name} is neither a folder nor a file here"

    def fetch(file: str) -> bool:
        path = folder / file
        if path.is_file():
            return True
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", ""):
            raise FileNotFoundError(f"{missing}, and HF_HUB_OFFLINE forbids asking the hub for it.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(HUB.format(name=name, file=file), str(path))
        except HTTPError as error:
            if error.code == 404:
                return False
            raise FileNotFoundError(f"{missing}, and the hub does not hand it out ({error}).") from None
        except (URLError, OSError) as error:
            raise FileNotFoundError(f"{missing}, and the hub cannot be reached ({error}).") from None
        return True

    if not fetch("config.json"):
        raise FileNotFoundError(f"{missing}, and the hub has no such model.")
    weights = next((file for file in WEIGHTS if fetch(file)), None)
    if weights is not None and weights.endswith(".index.json"):
        for part in _parts(folder / weights):
            fetch(part)
    return folder


# ------------------------------------------------------------------ GPT-2, minGPT, nanoGPT


def _is_mask(name: str, tensor: Tensor) -> bool:
    return name.endswith("attn.masked_bias") or (name.endswith("attn.bias") and tensor.dim() == 4)


def _upright(state: State) -> State:
    """Turn the weights of GPT-2's files, stored [in, out] for `x @ W`, to nn.Linear's [out, in]."""
    rows, columns = state["transformer.h.0.attn.c_attn.weight"].shape  # `_gpt_config` has looked at it
    if rows > columns:  # [3C, C]: minGPT and nanoGPT
        return state
    maps = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
    return {name: t.t().contiguous() if maps.search(name) and t.dim() == 2 else t for name, t in state.items()}


def _matrix(state: State, name: str, source: str | Path) -> Tensor:
    """Return a parameter that the sizes are read from. Raises ValueError where it is missing or has not two axes."""
    found = state.get(name)
    if found is None or found.dim() != 2:
        held = "missing" if found is None else f"{list(found.shape)}, without the two axes that it has in a model"
        raise ValueError(f"{source}: {name} is {held}.")
    return found


def _number(said: Mapping[str, Any], name: str, source: str | Path, usual: float | None = None) -> Any:
    """Return a number of a config. Raises ValueError where there is none, or something else."""
    value = said.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{source}: its config has {name}={value!r}, but a number is needed.")
    return value


ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu_erf", "relu": "relu"}


def _gpt_config(
    state: State, said: Mapping[str, Any], args: Any, source: str | Path, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return fields of GPTConfig: sizes from the tensors, the rest from config.json or nanoGPT's `model_args`."""
    V, C = _matrix(state, "transformer.wte.weight", source).shape
    _matrix(state, "transformer.h.0.attn.c_attn.weight", source)
    blocks = {name.split(".")[2] for name in state if name.startswith("transformer.h.")}
    hidden = _matrix(state, "transformer.h.0.mlp.c_fc.weight", source).numel() // max(1, C)
    fields: dict[str, Any] = {"n_layer": len(blocks), "n_embd": C, "vocab_size": V, "d_mlp": hidden}
    fields |= {
        "block_size": len(_matrix(state, "transformer.wpe.weight", source)),
        "bias": "transformer.h.0.attn.c_attn.bias" in state,
        "norm": "pre" if "transformer.ln_f.weight" in state else "post",
        "dropout": 0.0,
    }
    if isinstance(args, Mapping):
        return fields | {"n_head": _number(args, "n_head", source), "activation": "gelu_erf"}
    if said:
        for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
            if said.get(name):
                raise ValueError(f"{source}: its config asks for {name}, which this GPT does not have.")
        activation = said.get("activation_function", "gelu_new")
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise ValueError(f"{source}: activation_function={activation!r} is not one of {', '.join(ACTIVATIONS)}.")
        epsilon = _number(said, "layer_norm_epsilon", source, 1e-5)
        n_head = _number(said, "n_head", source)
        return fields | {"n_head": n_head, "activation": ACTIVATIONS[activation], "norm_eps": epsilon}
    if "n_head" not in changes:
        raise ValueError(f"{source} does not say into how many heads its {C} features are cut. Give n_head=.")
    head, table = state.get("lm_head.weight"), state["transformer.wte.weight"]
    if "activation" not in changes and (head is None or torch.equal(head, table)):
        raise ValueError(
            f"{source} has tied weights and no config: GPT-2's have the activation gelu_tanh, nanoGPT's gelu_erf. "
            "Give activation=."
        )
    return fields | {"activation": "gelu_tanh"}  # minGPT


# ------------------------------------------------------------------ Llama, Mistral, Qwen2, Mixtral

LLAMA_NAMES = (
    (r"^(model\.)?embed_tokens\.", "transformer.wte."),
    (r"^(model\.)?norm\.", "transformer.ln_f."),
    (r"^(model\.)?layers\.", "transformer.h."),
    (r"\.self_attn\.([qkv])_proj\.", r".attn.c_\1."),
    (r"\.self_attn\.o_proj\.", ".attn.c_proj."),
    (r"\.input_layernorm\.", ".ln_1."),
    (r"\.post_attention_layernorm\.", ".ln_2."),
    (r"\.block_sparse_moe\.", ".mlp."),
    (r"\.mlp\.gate\.", ".mlp.router."),
    (r"\.(gate_proj|w1)\.", ".c_gate."),
    (r"\.(up_proj|w3)\.", ".c_fc."),
    (r"\.(down_proj|w2)\.", ".c_proj."),
)


def _from_llama(state: State) -> State:
    """Return the tensors under our names; experts that are stacked in one tensor are taken apart."""
    found: State = {}
    for name, tensor in state.items():
        if name.endswith("rotary_emb.inv_freq"):
            continue
        for pattern, ours in LLAMA_NAMES:
            name = re.sub(pattern, ours, name)
        stem, _, last = name.rpartition(".")
        if last == "gate_up_proj" and tensor.dim() == 3:
            for e, both in enumerate(tensor):  # [E, 2M, C] -> E x [2M, C]
                gate, up = both.chunk(2)  # [2M, C] -> 2 x [M, C]
                found |= {f"{stem}.{e}.c_gate.weight": gate, f"{stem}.{e}.c_fc.weight": up}
        elif last == "down_proj" and tensor.dim() == 3:
            found |= {f"{stem}.{e}.c_proj.weight": down for e, down in enumerate(tensor)}  # [E, C, M] -> E x [C, M]
        else:
            found[name] = tensor
    return found


def _llama_config(said: Mapping[str, Any], source: str | Path) -> dict[str, Any]:
    """Return fields of GPTConfig from a config.json of the family."""
    kind = said.get("model_type")
    if kind not in ("llama", "mistral", "qwen2", "mixtral"):
        why = f"model_type={kind!r} is not" if said else "there is no config.json beside it to say which"
        raise ValueError(f"{source}: {why} one of llama, mistral, qwen2, mixtral.")
    rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"{source}: its config describes the rotary turn as {rope!r}, which says nothing by name.")
    if (rope_type := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise ValueError(f"{source}: its rotary frequencies are stretched ({rope_type}), which is not done here.")
    if said.get("mlp_bias") or said.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{source}: its MLP is no SwiGLU without biases, the only one of the family that is known.")
    n_layer, H, C, M, V, positions = (
        _number(said, name, source)
        for name in ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size",
                     "max_position_embeddings")
    )  # fmt: skip
    limited = said.get("use_sliding_window", True) and said.get("sliding_window")
    window = _number(said, "sliding_window", source) if limited else positions
    fields = {
        "n_layer": n_layer,
        "n_head": H,
        "n_kv_head": said.get("num_key_value_heads") or H,
        "d_head": said.get("head_dim") or C // max(1, H),
        "n_embd": C,
        "d_mlp": M,
        "vocab_size": V,
        # Attention that looks back a limited number of positions only is the usual one up to that many.
        "block_size": min(positions, window),
        "positions": "rotary",
        "rotary_base": float(_number(rope, "rope_theta", source, said.get("rope_theta", 10000.0))),
        "norm_type": "rms",
        "norm_eps": _number(said, "rms_norm_eps", source, 1e-6),
        "activation": "swiglu",
        "bias": bool(said.get("attention_bias", False)),
        "qkv_bias": True if kind == "qwen2" else None,
        "dropout": 0.0,
    }
    if kind == "mixtral":
        fields |= {
            "n_expert": _number(said, "num_local_experts", source),
            "n_chosen": _number(said, "num_experts_per_tok", source),
        }
    return fields
