"""`explore` without a browser: choosing, the two modes, and what is said when a choice makes no model."""

import gc
import os
import weakref
from pathlib import Path

import nbformat
import pytest
import torch
from matplotlib.figure import Figure
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tracer.errors import BuildError
from tracer.explorer import Explorer
from tracer.models import GPT, GPTConfig
from tracer.render.costs import short

WIDGET = Path(__file__).parent.parent / "tracer" / "widget"


class Record:
    """Stands for a Trace: it knows what the model returned."""

    def __init__(self, output):
        self.output = output

    def to_html(self):
        return f"<b>{tuple(self.output.shape)}</b>"


def record(model, *inputs, **keywords):
    return Record(model(*inputs, **keywords))


def build(H=2, D=4, norm="post", T=5):
    if norm == "none":
        raise BuildError("a block without a norm is not offered")
    return nn.Linear(H * D, H * D), (torch.zeros(T, H * D),)


def make(function=build, show=None, **choices):
    return Explorer(function, choices or {"H": (1, 8), "D": (4, 64)}, show=show, _trace=record)


def test_the_first_values_are_the_defaults_of_build():
    assert make(H=(1, 8), D=(4, 64), norm=["pre", "post"]).choices == {"H": 2, "D": 4, "norm": "post"}


def test_without_a_usable_default_the_low_end_is_taken():
    explorer = make(lambda H, D=1000, norm=None: build(H, D), H=(3, 8), D=(5, 64), norm=["pre", "post"])
    assert explorer.choices == {"H": 3, "D": 5, "norm": "pre"}


def test_a_new_value_runs_the_real_code_again():
    explorer = make()
    explorer.set(H=3, D=16)
    assert explorer.trace.output.shape == (5, 48)
    assert explorer.status == "C = H x D = 3 x 16 = 48"
    assert explorer.parameters == 48 * 48 + 48
    assert explorer._panel.picture == "<b>(5, 48)</b>"


def test_with_c_held_d_follows_h():
    explorer = make()
    explorer.set(H=3, D=16)
    explorer.hold()
    explorer.set(H=4)
    assert explorer.choices == {"H": 4, "D": 12}
    assert explorer.status == "C is held at 48: D = C / H = 48 / 4 = 12"
    assert explorer.parameters == 48 * 48 + 48
    explorer.release()
    explorer.set(H=5)
    assert explorer.choices == {"H": 5, "D": 12}


def test_heads_that_do_not_divide_c_are_explained_with_those_that_do():
    explorer = make()
    explorer.set(H=3, D=16)
    explorer.hold()
    good = explorer.trace
    explorer.set(H=5)
    assert explorer.message == (
        "Not possible: C is held at 48, and D = C / H = 48 / 5 is no whole number. H = 1, 2, 3, 4, 6 or 8 would do.\n"
        "The picture still shows H = 3, D = 16."
    )
    assert explorer.trace is good
    assert explorer._panel.state["blamed"] == ["H"]
    assert explorer._panel.state["values"] == {"H": 5, "D": None}
    explorer.set(H=6)
    assert explorer.message == ""
    assert explorer.choices == {"H": 6, "D": 8}


def test_a_held_size_may_leave_the_range_and_comes_back_into_it():
    explorer = make()
    explorer.set(H=8, D=64)
    explorer.hold()
    explorer.set(H=1)
    assert explorer.choices == {"H": 1, "D": 512}
    explorer.release()
    assert explorer.choices == {"H": 1, "D": 64}


def test_while_c_is_held_d_is_not_chosen():
    explorer = make()
    explorer.hold()
    explorer.set(D=8)
    assert explorer.message.startswith("Not possible: While C is held, D follows from it: D = C / H.")
    assert explorer.choices == {"H": 2, "D": 4}


@pytest.mark.parametrize("value", [0, 9, 2.5, True, "3", None, float("nan"), float("inf")])
def test_a_value_outside_the_range_is_explained(value):
    explorer = make()
    explorer.set(H=value)
    assert "H goes from 1 to 8 here" in explorer.message or "H is a whole number" in explorer.message
    assert explorer.choices == {"H": 2, "D": 4}
    assert explorer._panel.state["blamed"] == ["H"]


def test_what_build_refuses_is_explained_and_the_picture_stays():
    explorer = make(norm=["pre", "none"], H=(1, 8))
    good = explorer.trace
    explorer.set(norm="none")
    assert explorer.message == (
        "Not possible: a block without a norm is not offered\nThe picture still shows norm = pre, H = 2."
    )
    assert explorer.trace is good
    explorer.set(norm="batch")
    assert "norm can be pre or none; batch is not among them." in explorer.message


def test_true_or_false_is_a_switch():
    explorer = make(lambda H, bias=True: (nn.Linear(H, 2, bias=bias), torch.zeros(1, H)), H=(2, 3), bias=False)
    assert explorer.choices == {"H": 2, "bias": True}
    assert explorer._panel.form["controls"][1]["kind"] == "switch"
    assert ask(explorer, 1, H=2, bias=False)["values"] == {"H": 2, "bias": False}
    assert explorer.parameters == 4
    explorer.set(bias="no")
    assert "bias is True or False; no is neither." in explorer.message
    assert make(lambda H, bias: build(H), H=(2, 3), bias=True).choices["bias"] is True


def gpt(H=3, D=16, L=2, T=5, B=2, norm="pre", positions="learned", how="steps", bias=True):
    config = GPTConfig(n_layer=L, n_head=H, n_embd=H * D, vocab_size=11, block_size=16, norm=norm,
                       positions=positions, how=how, bias=bias)  # fmt: skip
    return GPT(config).eval(), torch.zeros(B, T, dtype=torch.long)


def real(**choices):
    return Explorer(gpt, choices)


def test_every_argument_of_the_builder_can_be_a_choice():
    choices = {"T": (1, 16), "B": (1, 4), "L": (1, 3), "norm": ["pre", "post"], "bias": False}
    choices |= {"positions": ["learned", "sinusoidal", "rotary"], "how": ["steps", "fused", "einops"]}
    explorer = real(H=(1, 8), D=(4, 64), **choices)
    moves = [("T", 7), ("B", 3), ("L", 3), ("norm", "post"), ("positions", "rotary"), ("how", "fused"), ("bias", False)]
    for name, value in moves:
        before = str(explorer.trace)
        explorer.set(**{name: value})
        assert explorer.message == ""
        assert explorer.choices[name] == value
        assert str(explorer.trace) != before or name == "bias"
        assert explorer.changed.startswith(("They part at", "Both runs")), name
    assert explorer.trace.sizes["T"] == 7
    assert explorer.trace.find(name="scaled_dot_product_attention")


def figures(explorer):
    return {label: (number, change) for label, number, change in explorer._figures()}


def test_parameters_flops_memory_and_cache_are_counted_against_the_setting_before():
    explorer = real(T=(1, 16), L=(1, 3))
    first = figures(explorer)
    assert list(first) == ["Parameters", "FLOPs", "New memory", "Peak memory", "KV cache"]
    assert {change for _, change in first.values()} == {""}
    # 2 layers x keys and values x [B, T, C] of 4 bytes
    assert first["KV cache"][0] == short(2 * 2 * 2 * 5 * 48 * 4, "B") == "7.68 kB"
    assert first["FLOPs"][0] == short(explorer.trace.flops)
    assert first["Peak memory"][0] == short(explorer.trace.peak.bytes, "B")
    explorer.set(T=10)
    second = figures(explorer)
    assert second["Parameters"] == (first["Parameters"][0], "unchanged")
    assert second["KV cache"] == ("15.4 kB", "before: 7.68 kB (+100%)")
    explorer.set(T=99)
    assert figures(explorer) == second
    explorer.set(T=10, L=1)
    assert figures(explorer)["KV cache"] == ("7.68 kB", "before: 15.4 kB (-50%)")


def test_the_cache_of_grouped_heads_is_smaller_and_an_encoder_has_none():
    def grouped(G=2):
        config = GPTConfig(n_layer=1, n_head=4, n_kv_head=G, n_embd=16, vocab_size=11, block_size=8)
        return GPT(config), torch.zeros(1, 3, dtype=torch.long)

    explorer = Explorer(grouped, {"G": (1, 4)})
    assert figures(explorer)["KV cache"][0] == f"{2 * 1 * 3 * 2 * 4 * 4} B"
    encoder = Explorer(lambda T: (nn.Linear(4, 4), torch.zeros(2, T, 4)), {"T": (3, 4)})
    assert "KV cache" not in figures(encoder)
    config = LlamaConfig(vocab_size=11, hidden_size=16, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, intermediate_size=8)  # fmt: skip
    theirs = Explorer(lambda T: (LlamaForCausalLM(config).eval(), torch.zeros(1, T, dtype=torch.long)), {"T": (3, 4)})
    assert figures(theirs)["KV cache"][0] == short(3 * 2 * 3 * 2 * 4 * 4, "B")


def test_what_fails_while_running_is_explained_with_its_notes():
    def fails(H):
        return (lambda x: x.view(H, 2)), torch.zeros(4)

    def record_with_note(model, *inputs):
        try:
            return record(model, *inputs)
        except RuntimeError as error:
            error.add_note("x: [4] has 4 elements, and [H, 2] has 6")
            raise

    explorer = Explorer(fails, {"H": (2, 3)}, _trace=record_with_note)
    explorer.set(H=3)
    assert "shape '[3, 2]' is invalid" in explorer.message
    assert "x: [4] has 4 elements, and [H, 2] has 6" in explorer.message
    assert explorer.parameters is None


def test_a_later_bug_of_build_is_named_by_its_kind():
    explorer = make(lambda H: build(H) if H == 1 else {}["weights"], H=(1, 4))
    explorer.set(H=2)
    assert "KeyError: 'weights'" in explorer.message


def test_an_impossible_first_picture_is_explained_and_a_bug_is_raised():
    explorer = make(norm=["none", "pre"])
    assert explorer.trace is None
    assert explorer.message == "Not possible: a block without a norm is not offered"
    explorer.set(norm="pre")
    assert explorer.trace is not None
    with pytest.raises(KeyError):
        make(lambda H: {}["weights"], H=(1, 4))


@pytest.mark.parametrize("choice", [3, 0, (1, 2, 3), (8, 1), (1.0, 2.0), (False, True), [], "pre"])
def test_a_choice_that_is_neither_range_nor_list_is_refused(choice):
    with pytest.raises(ValueError, match=r"H=.*give a pair of integers"):
        make(H=choice)


def test_names_that_are_no_choice_are_refused():
    with pytest.raises(ValueError, match="heads is no choice here; the choices are H, D"):
        make().set(heads=3)
    with pytest.raises(ValueError, match="at least one choice"):
        Explorer(build, {}, _trace=record)
    with pytest.raises(ValueError, match="only where H and D are both ranges"):
        make(H=(1, 8)).hold()


def test_inputs_may_be_one_tensor_or_keywords():
    assert make(lambda H: (nn.Identity(), torch.zeros(H, 2)), H=(3, 4)).trace.output.shape == (3, 2)
    assert make(lambda H: (nn.Identity(), {"input": torch.zeros(H, 2)}), H=(3, 4)).trace.output.shape == (3, 2)


def test_show_replaces_the_picture():
    class Table:
        def _repr_html_(self):
            return "<table></table>"

    assert make(show=lambda t: f"<i>{t.output.numel()}</i>")._panel.picture == "<i>40</i>"
    assert make(show=lambda t: Table())._panel.picture == "<table></table>"
    figure = make(show=lambda t: Figure(figsize=(2, 1)))._panel.picture
    assert figure.startswith("<svg") and "http-equiv" not in figure
    with pytest.raises(
        TypeError, match="show must return HTML, a figure or an object with _repr_html_; it returned int"
    ):
        make(show=lambda t: 3)


def ask(explorer, serial, held=False, **values):
    explorer._panel.asked = {"serial": serial, "values": values, "held": held}
    return explorer._panel.state


def test_the_browser_asks_and_is_answered():
    explorer = make(H=(1, 8), D=(4, 64), norm=["pre", "post"])
    state = ask(explorer, 1, H=3, D=16, norm=0)
    assert explorer.choices == {"H": 3, "D": 16, "norm": "pre"}
    assert state["answers"] == 1
    assert state["figures"] == [("Parameters", "2,352", "before: 72 (+3167%)")]
    state = ask(explorer, 2, held=True, H=3, D=16, norm=0)
    assert state["held"]
    state = ask(explorer, 3, held=True, H=6, D=16, norm=0)
    assert state["values"] == {"H": 6, "D": 8, "norm": 0}
    state = ask(explorer, 4, held=True, H=None, D=None, norm=0)
    assert "H is a whole number" in state["message"]


def test_an_interrupted_redraw_is_answered_too():
    def interrupted(H):
        if H != 1:
            raise KeyboardInterrupt
        return build(H)

    explorer = make(interrupted, H=(1, 2))
    with pytest.raises(KeyboardInterrupt):
        ask(explorer, 1, H=2)
    assert explorer._panel.state["answers"] == 1


def test_moving_a_slider_leaves_the_random_numbers_alone():
    explorer = make()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    explorer.set(H=4)
    assert torch.equal(torch.rand(3), expected)


def test_only_the_last_output_is_kept():
    explorer = make()
    old = weakref.ref(explorer.trace.output)
    explorer.set(H=3)
    gc.collect()
    assert old() is None


def test_the_still_picture_stands_apart_from_the_controls(monkeypatch):
    shown = []
    monkeypatch.setattr("tracer.explorer.display", lambda data, **_: shown.append(data))
    explorer = make(lambda H, norm: build(H), norm=["<pre>"], H=(2, 8))
    explorer._ipython_display_()
    controls, still = shown
    assert "application/vnd.jupyter.widget-view+json" in controls
    assert "text/html" not in controls
    assert "<b>(5, 8)</b>" in still["text/html"]
    assert "norm = &lt;pre&gt;" in still["text/html"]
    assert explorer._panel.form["still"] in still["text/html"]


def test_no_sentence_lives_in_the_script():
    code = (WIDGET / "explore.js").read_text(encoding="utf-8")
    shown = [line for line in code.splitlines() if "textContent =" in line or '"aria-label":' in line]
    assert shown
    assert all("state." in line or "form." in line or "spec." in line for line in shown)
    assert code.count("innerHTML") == 1


def test_an_executed_notebook_exports_the_picture_without_scripts():
    path = Path(__file__).parent / "browser" / "data" / "explore_toy.ipynb"
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=60, raise_on_iopub_timeout=True)
    client.execute(env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)})
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert "C = H x D = 3 x 16 = 48" in page
    assert "<th>qkv</th><td>[2, 5, 144]</td>" in page


def test_a_build_that_returns_no_pair_is_told_what_to_return():
    with pytest.raises(TypeError, match="return model, inputs"):
        Explorer(lambda H: nn.Linear(H, 2), {"H": (1, 4)})
