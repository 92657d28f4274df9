"""What the reference models cost beside transformers: `python tests/benchmark_models.py` (run it by hand).

At the size of GPT-2 small, with random weights, in one run, one thread. Forward passes are interleaved, round by round;
each ratio is the median over rounds of a pass over the pass of transformers in the same round. Times are CPU seconds of
this process.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tracer.models import GPT, GPTConfig


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def forward(rounds: int, B: int, T: int) -> None:
    """Print the time of a forward pass of each implementation, and its ratio to transformers' usual one."""
    config = GPTConfig.named("gpt2")
    judge = GPT2LMHeadModel(GPT2Config()).eval()
    eager = GPT2LMHeadModel._from_config(GPT2Config(), attn_implementation="eager").eval()
    ours = {how: GPT(replace(config, how=how)).eval() for how in ("steps", "fused", "einops")}
    idx = torch.randint(config.vocab_size, (B, T))
    runs: dict[str, Callable[[], object]] = {
        "transformers": lambda: judge(idx, use_cache=False),
        "transformers, eager": lambda: eager(idx, use_cache=False),
        **{how: lambda model=model: model(idx) for how, model in ours.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(-2, rounds):
        for name, run in runs.items():
            spent = seconds(run)
            if i >= 0:
                times[name].append(spent)
    print(f"forward, B={B} T={T}, {rounds} rounds")
    for name, seen in times.items():
        ratio = statistics.median(a / b for a, b in zip(seen, times["transformers"], strict=True))
        print(f"  {name:22} {statistics.median(seen) * 1e3:9.1f} ms {ratio:7.3f} x transformers")


def generation(n_layer: int, tokens: int, prompt: int) -> None:
    """Print the time of generating with the cache and without."""
    model = GPT(replace(GPTConfig.named("gpt2"), n_layer=n_layer)).eval()
    idx = torch.randint(50257, (1, prompt))
    model.generate(idx, 2)
    spent = {
        kept: seconds(lambda kept=kept: model.generate(idx, tokens, seed=0, use_cache=kept)) for kept in (True, False)
    }
    print(f"{tokens} tokens after a prompt of {prompt}, {n_layer} layers of GPT-2 small")
    print(f"  with cache    {spent[True]:8.2f} s")
    print(f"  without cache {spent[False]:8.2f} s, {spent[False] / spent[True]:.1f} times as long")


def main() -> None:
    """Run both comparisons."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--layers", type=int, default=12, help="of the model that generates")
    arguments.add_argument("--tokens", type=int, default=256)
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        forward(chosen.rounds, 1, 64)
        forward(max(3, chosen.rounds // 3), 1, 512)
    generation(chosen.layers, chosen.tokens, 16)


if __name__ == "__main__":
    main()
