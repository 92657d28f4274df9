"""How many axes are named on Hugging Face models that declare nothing: `python tests/benchmark_names.py` (run by hand).

Every model of `hf_models.MODELS` is built tiny and traced with eager and with fused attention, then, with fused
attention again, in a training step with labels and a padding mask. The table says which share of all axes of outputs
has a name, how many names came out at another size than their axis (`false`), how many differ at other sizes (`moved`:
the relabelling test), whether the output is bitwise that of the untraced run, and which operations had no rule.
"""

import argparse
import statistics
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from hf_models import DISTINCT, MODELS, OTHERS, build, by_place, compare, false_sizes, inputs, run, same, share

RUNS = {"eager": ("eager", False), "sdpa": ("sdpa", False), "training": ("sdpa", True)}
DECODERS = ("decoder",)


def untraced_is_same(name: str) -> bool:
    """Tell whether tracing left the output as it is."""
    traced = run(name, DISTINCT).output
    with torch.no_grad():
        return same(traced, build(name, DISTINCT)(**inputs(name, DISTINCT)))


def row(name: str, show: bool) -> dict[str, float]:
    """Measure one model and print its line; return its shares."""
    shares: dict[str, float] = {}
    false, moved, unnamed, count = 0, 0, {}, 0
    for label, (attention, training) in RUNS.items():
        trace = run(name, DISTINCT, attention, training)
        named, axes = share(trace)
        shares[label] = 100 * named / axes
        count = count or len(trace)
        unnamed |= dict.fromkeys(trace.unnamed)
        wrong = false_sizes(trace)
        reference = dict(by_place(trace))
        false += len(wrong)
        for what, sizes in OTHERS.items():
            if training and sizes.T == 1:
                continue  # with nothing to pad there is no mask: other operations
            other = run(name, sizes, attention, training)
            differ = compare(reference, other)
            wrong += [f"{what}: {text}" for text in differ]
            false += len(false_sizes(other))
            moved += len(differ)
        for text in wrong[:10] if show else ():
            print(f"    {label}, {text}")
    kept = "yes" if untraced_is_same(name) else "NO"
    line = f"{name:20} {MODELS[name].kind:9} {count:5} {_columns(shares)} {false:6} {moved:6}  {kept:8}"
    print(line, ", ".join(unnamed) or "-", flush=True)
    return shares


def _columns(shares: dict[str, float]) -> str:
    return f"{shares['eager']:7.1f} {shares['sdpa']:7.1f} {shares['training']:9.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="model", help=f"some of: {', '.join(MODELS)}")
    parser.add_argument("--show", action="store_true", help="print the names that are wrong")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("model                kind        ops   eager    sdpa  training  false  moved  bitwise  without a rule")
    table = {name: row(name, asked.show) for name in asked.models or MODELS}
    groups = {
        "decoder-only": [s for n, s in table.items() if MODELS[n].kind in DECODERS],
        "others": [s for n, s in table.items() if MODELS[n].kind not in DECODERS],
    }
    for what, shares in groups.items():
        if shares:
            mean = {label: statistics.fmean(s[label] for s in shares) for label in RUNS}
            print(f"{what:20} {len(shares):3} models      {_columns(mean)}")


if __name__ == "__main__":
    main()
