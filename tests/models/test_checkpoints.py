"""Reading trained weights: every layout, in every kind of file, and what is said when a file cannot be read."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tracer.models import GPT, GPTConfig, checkpoints

CONFIG = GPTConfig(n_layer=2, n_head=3, n_embd=21, d_mlp=84, vocab_size=11, block_size=5, dropout=0.0)
TIED = replace(CONFIG, tie_weights=True)
LLAMA = replace(
    CONFIG,
    n_embd=24,
    n_head=4,
    n_kv_head=2,
    d_mlp=13,
    positions="rotary",
    norm_type="rms",
    activation="swiglu",
    bias=False,
)
IDX = torch.tensor([[1, 7, 3, 10, 0], [5, 5, 2, 8, 4]])


def made(config: GPTConfig) -> GPT:
    torch.manual_seed(0)
    model = GPT(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model


def same(model: GPT, other: GPT) -> bool:
    return torch.equal(model(IDX)[0], other(IDX)[0]) and not other.training


def conv1d(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The layout of GPT-2's own files: [in, out], masks as floats, one table, no prefix."""
    maps = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    turned = {name: t.t().contiguous() if name.endswith(maps) else t for name, t in state.items()}
    masks = {name: t.float() for name, t in turned.items() if name.endswith("attn.bias")}
    extra = {name.replace("attn.bias", "attn.masked_bias"): torch.tensor(-1e4) for name in masks}
    return {n.removeprefix("transformer."): t for n, t in (turned | masks | extra).items() if n != "lm_head.weight"}


GPT2_JSON = {"model_type": "gpt2", "n_head": 3, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


def test_mingpt(tmp_path):
    model = made(CONFIG)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = GPT.from_pretrained(tmp_path / "model.pt", n_head=3)
    assert same(model, other) and other.config == CONFIG
    assert same(model, GPT.from_pretrained(str(tmp_path), n_head=3))  # the only file of the folder
    assert not same(model, GPT.from_pretrained(tmp_path, n_head=7))
    with pytest.raises(ValueError, match=r"does not say into how many heads its 21 features are cut. Give n_head=\."):
        GPT.from_pretrained(tmp_path)


@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
@pytest.mark.parametrize("bias", [True, False])
def test_nanogpt(tmp_path, prefix, bias):
    model = made(replace(TIED, activation="gelu_erf", bias=bias))
    state = {
        prefix + name: t for name, t in model.state_dict().items() if not name.endswith("attn.bias") or t.dim() == 1
    }
    arguments = {"n_layer": 2, "n_head": 3, "n_embd": 21, "block_size": 5, "bias": bias, "vocab_size": 11}
    saved = {"model": state, "model_args": arguments | {"dropout": 0.0}, "iter_num": 7, "config": {"lr": 0.1}}
    torch.save(saved, tmp_path / "ckpt.pt")
    other = GPT.from_pretrained(tmp_path / "ckpt.pt")
    assert same(model, other) and other.config == model.config
    assert other.lm_head.weight is other.transformer.wte.weight
    assert not same(model, GPT.from_pretrained(tmp_path, activation="gelu_tanh"))


@pytest.mark.parametrize("kind", ["safetensors", "torch", "parts", "file", "with prefix"])
def test_gpt2(tmp_path, kind):
    model = made(TIED)
    state = conv1d(model.state_dict())
    if kind == "with prefix":
        state = {f"transformer.{name}": t for name, t in state.items()}
    (tmp_path / "config.json").write_text(json.dumps(GPT2_JSON))
    if kind == "torch":
        torch.save(state, tmp_path / "pytorch_model.bin")
    elif kind == "parts":
        names = list(state)
        parts = {"one.safetensors": names[:9], "two.safetensors": names[9:]}
        for file, held in parts.items():
            save_file({name: state[name] for name in held}, tmp_path / file)
        index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(state, tmp_path / "model.safetensors")
    other = GPT.from_pretrained(tmp_path / "model.safetensors" if kind == "file" else tmp_path)
    assert same(model, other) and other.config == TIED
    assert other.lm_head.weight is other.transformer.wte.weight
    assert all(p.requires_grad and not p.is_meta for p in other.parameters())
    assert set(other.state_dict()) == set(model.state_dict())


def test_gpt2_without_a_config_could_be_two_models(tmp_path):
    save_file(conv1d(made(TIED).state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"GPT-2's have the activation gelu_tanh, nanoGPT's gelu_erf. Give activation=\."
    ):
        GPT.from_pretrained(tmp_path, n_head=3)
    assert same(made(TIED), GPT.from_pretrained(tmp_path, n_head=3, activation="gelu_tanh"))


def test_choices_of_ones_own(tmp_path):
    torch.save(made(CONFIG).state_dict(), tmp_path / "model.pt")
    other = GPT.from_pretrained(tmp_path, n_head=3, how="fused", dropout=0.2)
    assert other.config.how == "fused" and other.transformer.drop.p == 0.2
    assert (other(IDX)[0] - made(CONFIG)(IDX)[0]).abs().max() < 1e-5


def test_it_can_be_trained_on(tmp_path):
    torch.save(made(TIED).state_dict(), tmp_path / "model.pt")
    model = GPT.from_pretrained(tmp_path, n_head=3, activation="gelu_tanh")
    model(IDX, IDX)[1].backward()
    assert all(p.grad is not None for p in model.parameters())


# ------------------------------------------------------------------ files that cannot be read


class Code:
    """What a pickle runs when it is opened."""

    def __reduce__(self):
        return print, ("this must not be printed",)


def refused(path: Path, **changes) -> str:
    with pytest.raises(ValueError) as caught:
        GPT.from_pretrained(path, **changes)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_code_is_not_run(tmp_path, protocol, capfd):
    path = tmp_path / "model.pt"
    if protocol == "torch":
        torch.save({"a": Code()}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Code()}, protocol=2))
    assert "holds more than numbers: reading it would run code that it brings along." in refused(path, n_head=3)
    assert "must not be printed" not in capfd.readouterr().out


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_file_that_is_cut_short(tmp_path, kind, share):
    path = tmp_path / f"model.{kind}"
    state = made(CONFIG).state_dict()
    torch.save(state, path) if kind == "pt" else save_file(state, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "cannot be read: it is cut short, or " in refused(path, n_head=3)


def test_a_file_of_something_else(tmp_path):
    path = tmp_path / "model.pt"
    path.write_text("hello, this is no checkpoint")
    assert "cannot be read: it is cut short, or was not written by torch.save." in refused(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="holds a list, not a table of tensors by name"):
        GPT.from_pretrained(path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(ValueError, match="holds no table of tensors by name, so there is no model in it to read"):
        GPT.from_pretrained(path)
    torch.save({"encoder.layer.0.weight": torch.zeros(3), "b": torch.zeros(1)}, path)
    with pytest.raises(
        ValueError, match=r"has a layout that is not known: it begins with encoder\.layer\.0\.weight, b\."
    ):
        GPT.from_pretrained(path)


def test_tensors_that_are_missing_or_too_many(tmp_path):
    state = made(CONFIG).state_dict()
    del state["transformer.h.1.mlp.c_proj.bias"]
    state["transformer.h.1.mlp.c_gate.weight"] = torch.zeros(2)
    state["transformer.h.1.ln_1.weight"] = torch.zeros(7)
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ValueError) as caught:
        GPT.from_pretrained(tmp_path, n_head=3)
    assert str(caught.value) == (
        "the weights do not fit the model that their config describes: transformer.h.1.mlp.c_proj.bias is missing, "
        "transformer.h.1.mlp.c_gate.weight has no place in it, transformer.h.1.ln_1.weight is [7] for [21]."
    )


def test_our_own_llama_needs_its_own_config(tmp_path):
    torch.save(made(LLAMA).state_dict(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"has the names of tracer\.models itself, and no config\."):
        GPT.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "tanh"}, "activation_function='tanh' is not one of gelu_new"),
        ({"scale_attn_by_inverse_layer_idx": True}, "asks for scale_attn_by_inverse_layer_idx"),
    ],
)
def test_a_gpt2_that_is_another(tmp_path, change, message):
    save_file(conv1d(made(TIED).state_dict()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(GPT2_JSON | change))
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "there is no config.json beside it to say which one of llama, mistral, qwen2, mixtral."),
        ({"model_type": "gemma"}, "model_type='gemma' is not one of llama, mistral, qwen2, mixtral."),
        (
            {"model_type": "llama", "rope_scaling": {"rope_type": "llama3"}},
            r"its rotary frequencies are stretched \(llama3\), which is not done here.",
        ),
        ({"model_type": "llama", "hidden_act": "gelu"}, "its MLP is no SwiGLU without biases"),
    ],
)
def test_a_llama_that_is_another(tmp_path, config, message):
    save_file({"model.layers.0.self_attn.q_proj.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained(tmp_path)


def test_a_config_that_is_no_json(tmp_path):
    save_file(conv1d(made(TIED).state_dict()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"n_head": ')
    assert "config.json cannot be read" in refused(tmp_path)


def test_folders_without_one_file_of_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no file of weights"):
        GPT.from_pretrained(tmp_path)
    for name in ("a.pt", "b.pt"):
        torch.save({}, tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"holds 2 files of weights, and none of the usual name"):
        GPT.from_pretrained(tmp_path)


# ------------------------------------------------------------------ the hub


class Hub:
    """A hub in a folder, in place of the network."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, []

    def __call__(self, url: str, path: str) -> None:
        prefix = "https://huggingface.co/someone/small-gpt/resolve/main/"
        assert url.startswith(prefix)
        self.asked.append(url.removeprefix(prefix))
        if not (self.folder / self.asked[-1]).is_file():
            raise HTTPError(url, 404, "Not Found", None, None)
        Path(path).write_bytes((self.folder / self.asked[-1]).read_bytes())


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Hub:
    (tmp_path / "hub").mkdir()
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "cache"))
    found = Hub(tmp_path / "hub")
    monkeypatch.setattr(torch.hub, "download_url_to_file", found)
    return found


def test_a_name_is_fetched_once(hub):
    model = made(TIED)
    (hub.folder / "config.json").write_text(json.dumps(GPT2_JSON))
    torch.save(conv1d(model.state_dict()), hub.folder / "pytorch_model.bin")
    assert same(model, GPT.from_pretrained("someone/small-gpt"))
    assert hub.asked == ["config.json", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"]
    assert same(model, GPT.from_pretrained("someone/small-gpt"))
    assert hub.asked.count("pytorch_model.bin") == hub.asked.count("config.json") == 1


def test_a_name_that_nobody_has(hub, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match="someone/small-gpt is neither a folder nor a file here, and the hub has no"
    ):
        GPT.from_pretrained("someone/small-gpt")

    def unreachable(url, path):
        raise URLError("no route")

    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(FileNotFoundError, match="and the hub cannot be reached"):
        GPT.from_pretrained("someone/small-gpt")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="and HF_HUB_OFFLINE forbids asking"):
        GPT.from_pretrained("someone/small-gpt")
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors is neither a folder nor a file here\."):
        GPT.from_pretrained("missing.safetensors")
    assert checkpoints.HUB.startswith("https://")


GPT2_TABLES = ("wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.0.mlp.c_fc.weight")


@pytest.mark.parametrize("spoil", ["left out", "no axes", "one axis", "three axes", "ids", "without numbers", "sparse"])
@pytest.mark.parametrize("name", [*GPT2_TABLES, "h.0.attn.c_proj.weight"])
def test_a_parameter_that_is_none(tmp_path, name, spoil):
    state = conv1d(made(TIED).state_dict())
    tensor = state.pop(name)
    others = {
        "no axes": torch.tensor(1.0),
        "one axis": torch.ones(3),
        "three axes": torch.ones(2, 3, 4),
        "ids": tensor.long(),
        "without numbers": tensor.to("meta"),
        "sparse": tensor.to_sparse(),
    }
    torch.save(state | ({name: others[spoil]} if spoil in others else {}), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(GPT2_JSON))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        GPT.from_pretrained(tmp_path)


def test_names_that_are_no_text(tmp_path):
    torch.save({1: torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="holds no table of tensors by name"):
        GPT.from_pretrained(tmp_path / "model.pt")


@pytest.mark.parametrize("value", [None, "three", True])
@pytest.mark.parametrize("name", ["n_head", "layer_norm_epsilon"])
def test_a_config_without_its_numbers(tmp_path, name, value):
    torch.save(conv1d(made(TIED).state_dict()), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(GPT2_JSON | {name: value}))
    with pytest.raises(ValueError, match=f"its config has {name}={value!r}, but a number is needed"):
        GPT.from_pretrained(tmp_path)


LLAMA_JSON = {
    **{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"hidden_size": 24, "intermediate_size": 13, "vocab_size": 11, "max_position_embeddings": 5},
    "rms_norm_eps": 1e-5,
}


def llama(folder: Path, said: dict[str, object], *left_out: str) -> Path:
    """A Llama's files in `folder`, with `said` in its config and without some of its tensors."""
    back = {
        "transformer.wte.": "model.embed_tokens.", "transformer.ln_f.": "model.norm.",
        "transformer.h.": "model.layers.",
        "attn.c_proj": "self_attn.o_proj", "attn.c_": "self_attn.", "ln_1": "input_layernorm",
        "ln_2": "post_attention_layernorm", "c_gate": "gate_proj", "c_fc": "up_proj", "mlp.c_proj": "mlp.down_proj",
    }  # fmt: skip
    state = {}
    for name, tensor in made(LLAMA).state_dict().items():
        for ours, theirs in back.items():
            name = name.replace(ours, theirs)
        for part in "qkv":
            name = name.replace(f"self_attn.{part}.", f"self_attn.{part}_proj.")
        state[name] = tensor
    save_file({name: t for name, t in state.items() if name not in left_out}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(LLAMA_JSON | said))
    return folder


def test_a_llama_without_its_head(tmp_path):
    assert same(made(LLAMA), GPT.from_pretrained(llama(tmp_path, {})))
    with pytest.raises(ValueError, match=r"lm_head\.weight is missing, and its config does not tie it"):
        GPT.from_pretrained(llama(tmp_path, {}, "lm_head.weight"))
    assert GPT.from_pretrained(llama(tmp_path, {"tie_word_embeddings": True}, "lm_head.weight")).config.tie_weights


@pytest.mark.parametrize("name", [n for n in LLAMA_JSON if n not in ("model_type", "num_key_value_heads")])
def test_a_llama_without_its_numbers(tmp_path, name):
    with pytest.raises(ValueError, match=f"its config has {name}=None, but a number is needed"):
        GPT.from_pretrained(llama(tmp_path, {name: None}))


@pytest.mark.parametrize("said", [{}, {"weight_map": {}}, {"weight_map": ["a"]}, {"weight_map": {"a": 3}},
                                  {"weight_map": {"a": "../model.safetensors"}},
                                  {"weight_map": {"a": "model.safetensors.index.json"}}])  # fmt: skip
def test_an_index_that_leads_nowhere(tmp_path, said):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="does not say in which files beside it the tensors lie"):
        GPT.from_pretrained(tmp_path)


def test_an_index_of_a_file_that_is_missing(tmp_path):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileNotFoundError, match=r"model-00001-of-00002\.safetensors is missing"):
        GPT.from_pretrained(tmp_path)
