"""What tracing costs, as multiples of the plain forward: `python tests/benchmark_tracing.py` (run it by hand).

One run, interleaved, CPU time of this process, medians. Beside the warm case (the same call again, names from the
cache) stand the cold one (no names kept) and the varied one (another number of positions at every call).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tracer
from tracer import namer
from tracer.models import GPT, GPTConfig


class Bare(TorchFunctionMode):
    """The least that a function mode can do: keep the name and the shapes of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, list[object], object]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        """Run the call and note it."""
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor | tuple | list):
            self.log.append((getattr(func, "__name__", ""), [shapes(a) for a in args], shapes(out)))
        return out


def shapes(value: object) -> object:
    """Return the shape of a tensor, or of the tensors in a list."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    return [shapes(v) for v in value] if isinstance(value, tuple | list) else None


def read(trace: tracer.Trace) -> int:
    """Ask for everything that could be left for later."""
    for op in trace:
        for info in op.outputs:
            _ = info.axes, info.label, info.stride
        _ = op.source, op.module, op.memory, op.variable
    return len(trace)


def cases(model: GPT, idx: torch.Tensor) -> dict[str, Callable[[int], object]]:
    """Return what is timed; each gets the number of its call."""
    T = idx.shape[1]

    def bare(_: int) -> object:
        with Bare():
            return model(idx)

    def cold(_: int) -> object:
        namer._CACHE.clear()
        return read(tracer.trace(model, idx))

    return {
        "plain": lambda _: model(idx),
        "bare function mode": bare,
        "recorded": lambda _: len(tracer.trace(model, idx)),
        "named, warm": lambda _: read(tracer.trace(model, idx)),
        "named, cold": cold,
        "named, varied T": lambda i: read(tracer.trace(model, idx[:, : 1 + i % T])),
        "HTML": lambda _: tracer.trace(model, idx).to_html(),
    }


def main() -> None:
    """Time every case on a small GPT and print the ratios."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=60)
    rounds = arguments.parse_args().rounds
    torch.set_num_threads(1)
    model = GPT(GPTConfig(n_layer=2, n_head=4, n_embd=64, vocab_size=65, block_size=64)).eval()
    idx = torch.randint(0, 65, (1, 64))
    timed = cases(model, idx)
    times: dict[str, list[float]] = {name: [] for name in timed}
    with torch.no_grad():
        for i in range(-5, rounds):
            for name, run in timed.items():
                start = time.process_time()
                run(i)
                if i >= 0:
                    times[name].append(time.process_time() - start)
    plain, bare = (statistics.median(times[n]) for n in ("plain", "bare function mode"))
    print(f"{'':20} {'ms':>8} {'x plain':>8} {'x bare mode':>12}")
    for name, seen in times.items():
        middle = statistics.median(seen)
        print(f"{name:20} {middle * 1e3:8.2f} {middle / plain:8.2f} {middle / bare:12.2f}")


if __name__ == "__main__":
    main()
