"""What a trace of a very large model costs: `python tests/benchmark_size.py` (run it by hand).

GPT-3 and a model of the shape of Llama 3.1 405B are built on the meta device, where tensors have no storage, run plain
and traced with every name resolved, each in a process of its own; then a chain of 10 to 100,000 operations shows how
cost grows. Seconds are CPU time; MB are what the process holds at its peak over what the plain run held.
"""

import argparse
import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tracer
from tracer import namer
from tracer.models import GPT, GPTConfig
from tracer.naming import size_of

LLAMA = {"L": 126, "C": 16384, "H": 128, "G": 8, "D": 128, "M": 53248, "V": 128256}
"""Llama 3.1 405B, 'The Llama 3 Herd of Models', table 3."""


class Norm(nn.Module):
    """Root-mean-square norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale x, [B, T, C], to a mean square of 1."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight  # [B, T, C]


class Layer(nn.Module):
    """One layer: grouped-query attention with rotary positions, then SwiGLU."""

    def __init__(self, n: dict[str, int]) -> None:
        super().__init__()
        C, M, self.D = n["C"], n["M"], n["D"]
        self.q, self.o = nn.Linear(C, n["H"] * n["D"], bias=False), nn.Linear(n["H"] * n["D"], C, bias=False)
        self.k, self.v = (nn.Linear(C, n["G"] * n["D"], bias=False) for _ in "kv")
        self.gate, self.up, self.down = (
            nn.Linear(C, M, bias=False),
            nn.Linear(C, M, bias=False),
            nn.Linear(M, C, bias=False),
        )
        self.before, self.after = Norm(C), Norm(C)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return the layer's output for x, [B, T, C]; cos and sin are [T, D]."""
        B, T, _ = x.shape
        y = self.before(x)
        q, k, v = (m(y).view(B, T, -1, self.D).transpose(1, 2) for m in (self.q, self.k, self.v))  # [B, H or G, T, D]
        q, k = (t * cos + self.turned(t) * sin for t in (q, k))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # [B, H, T, D]
        x = x + self.o(out.transpose(1, 2).reshape(B, T, -1))  # [B, T, C]
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))  # [B, T, C]

    def turned(self, t: torch.Tensor) -> torch.Tensor:
        """Swap the halves of each head, the second with a minus."""
        half = self.D // 2
        return torch.cat([-t[..., half:], t[..., :half]], dim=-1)


class Llama(nn.Module):
    """A decoder of Llama's shape: what the tracer meets, not a trained model."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.sizes = {k: v for k, v in sizes.items() if k != "L"}
        self.embed = nn.Embedding(sizes["V"], sizes["C"])
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes["L"]))
        self.norm, self.head = Norm(sizes["C"]), nn.Linear(sizes["C"], sizes["V"], bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits, [B, T, V], for ids, [B, T]."""
        D = self.sizes["D"]
        x = self.embed(ids)
        rates = 5e5 ** -(torch.arange(0, D, 2, device=ids.device) / D)  # [D/2]
        angles = torch.arange(ids.shape[1], device=ids.device)[:, None] * rates  # [T, D/2]
        angles = torch.cat([angles, angles], -1)  # [T, D]
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))


def gpt3() -> nn.Module:
    """Return GPT-3 175B without storage."""
    return GPT(GPTConfig.named("gpt3"))


def llama() -> nn.Module:
    """Return a model of the shape of Llama 3.1 405B without storage."""
    return Llama(**LLAMA)


class Chain(nn.Module):
    """n operations, from one line."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale, cut and join x again and again."""
        for _ in range(self.n // 5):
            x = (x * 2).view(2, 5, 3, 8).transpose(1, 2).transpose(1, 2).reshape(2, 5, 24)
        return x


def resolve(trace: tracer.Trace) -> int:
    """Ask for every name; return how many axes have none."""
    return sum(a == "?" for op in trace for t in op.outputs for a in t.axes)


def peak_mb() -> float:
    """Return the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(f: Callable[[], object]) -> tuple[float, object]:
    """Return seconds of CPU time and the result."""
    start = time.process_time()
    found = f()
    return time.process_time() - start, found


def measure(name: str) -> None:
    """Print one line for one model."""
    with torch.device("meta"):
        model = {"gpt3": gpt3, "llama": llama}[name]().eval()
        ids = torch.zeros(1, 2048, dtype=torch.long)
    tiny = Chain(8)
    resolve(tracer.trace(tiny, torch.zeros(2, 5, 24), axes=["B T C"], sizes={"C": 24, "H": 3}))  # imports, first calls
    with torch.no_grad():
        timed(lambda: model(ids))
        plain, _ = timed(lambda: model(ids))
        gc.collect()
        before = peak_mb()
        recording, t = timed(lambda: tracer.trace(model, ids))
        assert isinstance(t, tracer.Trace)
        naming, unknown = timed(lambda: resolve(t))
    outputs = [o for op in t for o in op.outputs]
    axes = [pair for o in outputs for pair in zip(o.axes, o.shape, strict=True)]
    wrong = sum(a != "?" and size_of(a, t.sizes) != n for a, n in axes)
    count = sum(p.numel() for p in model.parameters())
    print(
        f"{name:6} {count / 1e9:6.1f}e9 parameters  {len(t):6} operations  "
        f"plain {plain:5.2f} s  recording {recording:5.2f} s  "
        f"naming {naming:5.2f} s  {peak_mb() - before:6.1f} MB over torch  {unknown} axes without a name, {wrong} wrong"
    )


def series() -> None:
    """Print how cost grows with the number of operations."""
    print("\noperations   recording   naming   microseconds for each operation")
    for n in (10, 100, 1_000, 10_000, 100_000):
        recording, naming = (
            min(column) for column in zip(*(once(n) for _ in range(5 if n < 5_000 else 1)), strict=True)
        )
        print(f"{n:10} {recording:9.3f} s {naming:7.3f} s {1e6 * (recording + naming) / n:8.1f}", flush=True)


def once(n: int) -> tuple[float, float]:
    """Return seconds for recording n operations and for naming them."""
    model, x = Chain(n), torch.zeros(2, 5, 24)
    recording, t = timed(lambda: tracer.trace(model, x, axes=["B T C"], sizes={"C": 24, "H": 3}))
    assert isinstance(t, tracer.Trace) and len(t) == n
    namer._CACHE.clear()
    return recording, timed(lambda: resolve(t))[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["gpt3", "llama", "series"])
    chosen = parser.parse_args().part
    torch.set_num_threads(1)
    if chosen in ("gpt3", "llama"):
        measure(chosen)
    elif chosen == "series":
        series()
    else:
        for part in ("gpt3", "llama", "series"):
            subprocess.run([sys.executable, __file__, part], check=True)
