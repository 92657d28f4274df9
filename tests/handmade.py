"""Traces written out by hand, for tests of what is shown: no torch, no engine, no naming."""

from dataclasses import replace
from math import prod

from tracer.naming import parse_axes, size_of
from tracer.records import Memory, Op, Source, TensorInfo

SIZES = {"B": 2, "T": 5, "C": 21, "H": 3, "D": 7, "M": 84, "V": 11}


class Maker:
    """Makes tensors and operations with running numbers, and keeps the operations in order."""

    def __init__(self, sizes: dict[str, int] | None = None, file: str = "/home/me/model.py") -> None:
        self.sizes = sizes or SIZES
        self.file = file
        self.ops: list[Op] = []
        self._ids = 0

    def tensor(
        self,
        axes: str,
        variable: str | None = None,
        *,
        shape: tuple[int, ...] | None = None,
        memory: Memory | None = None,
        of: TensorInfo | None = None,
        origins: tuple[str | None, ...] | None = None,
        dtype: str = "torch.float32",
        device: str = "cpu",
        stride: tuple[int, ...] | None = None,
    ) -> TensorInfo:
        """Make a tensor; `of` is the one whose storage it shares."""
        names = parse_axes(axes)
        shape = shape or tuple(size_of(name, self.sizes) or 1 for name in names)
        self._ids += 1
        contiguous = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        label = "[" + ", ".join(a if a != "?" else f"?={n}" for a, n in zip(names, shape, strict=True)) + "]"
        return TensorInfo(
            id=self._ids,
            shape=shape,
            axes=names,
            label=label,
            variable=variable,
            dtype=dtype,
            device=device,
            stride=stride or contiguous,
            contiguous=stride in (None, contiguous),
            storage=of.storage if of else self._ids,
            offset=0,
            memory=memory,
            origins=origins or (None,) * len(names),
        )

    def op(
        self,
        name: str,
        inputs: list[TensorInfo],
        outputs: list[TensorInfo] | TensorInfo,
        at: tuple[int, str] | None = None,
        *,
        module: str = "",
        args: tuple[object, ...] = (),
        parent: int | None = None,
    ) -> TensorInfo:
        """Add an operation, and return its first output as a later operation would receive it."""
        outputs = outputs if isinstance(outputs, list) else [outputs]
        read = sum(4 * prod(i.shape) for i in inputs)
        new = sum(4 * prod(o.shape) for o in outputs if o.memory == "new")
        self.ops.append(
            Op(
                index=len(self.ops),
                name=name,
                inputs=tuple(replace(i, memory=None) for i in inputs),
                outputs=tuple(outputs),
                args=args,
                module=module,
                source=Source(self.file, *at) if at else None,
                flops=0,
                bytes_read=read,
                bytes_written=new,
                bytes_new=new,
                parent=parent,
            )
        )
        return (*outputs, *inputs, self.tensor("1"))[0]


def gpt(blocks: int = 2, sizes: dict[str, int] | None = None) -> tuple[Op, ...]:
    """Return the operations of a GPT forward with loss, as minGPT writes it."""
    m = Maker(sizes)
    idx = m.tensor("B T", "idx", dtype="torch.int64")
    wte, wpe = m.tensor("V C"), m.tensor("T C")
    at = (61, "pos = torch.arange(0, t, device=idx.device).unsqueeze(0)")
    pos = m.op("arange", [], m.tensor("T", memory="new", dtype="torch.int64"), at)
    pos = m.op("unsqueeze", [pos], m.tensor("1 T", "pos", memory="view", of=pos, dtype="torch.int64"), at, args=(0,))
    at = (62, "tok_emb = self.transformer.wte(idx)")
    tok = m.op("embedding", [idx, wte], m.tensor("B T C", "tok_emb", memory="new"), at, module="transformer.wte")
    at = (63, "pos_emb = self.transformer.wpe(pos)")
    emb = m.op("embedding", [pos, wpe], m.tensor("1 T C", "pos_emb", memory="new"), at, module="transformer.wpe")
    at = (64, "x = self.transformer.drop(tok_emb + pos_emb)")
    x = m.op("add", [tok, emb], m.tensor("B T C", memory="new"), at)
    x = m.op("dropout", [x], replace(x, variable="x", memory="same"), at, module="transformer.drop", args=(0.1,))
    for i in range(blocks):
        x = block(m, x, f"transformer.h.{i}")
    at = (67, "x = self.transformer.ln_f(x)")
    g, b = m.tensor("C"), m.tensor("C")
    x = m.op("layer_norm", [x, g, b], m.tensor("B T C", "x", memory="new"), at, module="transformer.ln_f")
    at = (68, "logits = self.lm_head(x)")
    logits = m.op("linear", [x, wte], m.tensor("B T V", "logits", memory="new"), at, module="lm_head")
    at = (70, "loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))")
    flat = m.op("view", [logits], m.tensor("(B T) V", memory="view", of=logits), at, args=(-1, 11))
    targets = m.tensor("B T", "targets", dtype="torch.int64")
    goal = m.op("view", [targets], m.tensor("(B T)", memory="view", of=targets, dtype="torch.int64"), at, args=(-1,))
    m.op("cross_entropy", [flat, goal], m.tensor("", "loss", shape=(), memory="new"), at)
    return tuple(m.ops)


def block(m: Maker, x: TensorInfo, path: str) -> TensorInfo:
    """Add the operations of one pre-norm block."""
    at = (51, "x = x + self.attn(self.ln_1(x))")
    y = m.op(
        "layer_norm", [x, m.tensor("C"), m.tensor("C")], m.tensor("B T C", memory="new"), at, module=f"{path}.ln_1"
    )
    y = attention(m, replace(y, variable="x"), f"{path}.attn")
    x = m.op("add", [x, y], m.tensor("B T C", "x", memory="new"), at, module=path)
    at = (52, "x = x + self.mlp(self.ln_2(x))")
    y = m.op(
        "layer_norm", [x, m.tensor("C"), m.tensor("C")], m.tensor("B T C", memory="new"), at, module=f"{path}.ln_2"
    )
    at = (43, "return self.c_proj(self.act(self.c_fc(x)))")
    y = replace(y, variable="x")
    y = m.op("linear", [y, m.tensor("M C")], m.tensor("B T M", memory="new"), at, module=f"{path}.mlp.c_fc")
    y = m.op("gelu", [y], m.tensor("B T M", memory="new"), at, module=f"{path}.mlp.act")
    y = m.op("linear", [y, m.tensor("C M")], m.tensor("B T C", memory="new"), at, module=f"{path}.mlp.c_proj")
    at = (52, "x = x + self.mlp(self.ln_2(x))")
    return m.op("add", [x, y], m.tensor("B T C", "x", memory="new"), at, module=path)


def attention(m: Maker, x: TensorInfo, path: str) -> TensorInfo:
    """Add the operations of causal self-attention."""
    at = (20, "q, k, v = self.c_attn(x).split(self.n_embd, dim=2)")
    qkv = m.op("linear", [x, m.tensor("3C C")], m.tensor("B T 3C", memory="new"), at, module=f"{path}.c_attn")
    parts = [m.tensor("B T C", name, memory="view", of=qkv, stride=(315, 63, 1)) for name in "qkv"]
    m.op("split", [qkv], parts, at, module=path, args=(21, "dim=2"))
    q, k, v = (_heads(m, part, line, path) for part, line in zip(parts, (21, 22, 23), strict=True))
    at = (25, "scores = q @ k.transpose(-2, -1) / math.sqrt(D)")
    origins = (None, None, "T of q", "T of k")
    kt = m.op("transpose", [k], m.tensor("B H D T", memory="view", of=k), at, module=path, args=(-2, -1))
    s = m.op("matmul", [q, kt], m.tensor("B H T T", memory="new", origins=origins), at, module=path)
    s = m.op("div", [s], m.tensor("B H T T", "scores", memory="new", origins=origins), at, module=path, args=(2.65,))
    at = (26, 'scores = scores.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))')
    bias = m.tensor("1 1 ? ?", "bias", shape=(1, 1, 8, 8))
    mask = m.op("getitem", [bias], m.tensor("1 1 T T", memory="view", of=bias), at, module=path)
    mask = m.op("eq", [mask], m.tensor("1 1 T T", memory="new", dtype="torch.bool"), at, module=path, args=(0,))
    masked = m.tensor("B H T T", "scores", memory="new", origins=origins)
    s = m.op("masked_fill", [s, mask], masked, at, module=path, args=(float("-inf"),))
    at = (27, "weights = F.softmax(scores, dim=-1)")
    w = m.op(
        "softmax", [s], m.tensor("B H T T", "weights", memory="new", origins=origins), at, module=path, args=("dim=-1",)
    )
    heads = m.op("matmul", [w, v], m.tensor("B H T D", "heads", memory="new"), (28, "heads = weights @ v"), module=path)
    at = (29, "out = heads.transpose(1, 2).contiguous().view(B, T, C)")
    o = m.op("transpose", [heads], m.tensor("B T H D", memory="view", of=heads), at, module=path, args=(1, 2))
    o = m.op("contiguous", [o], m.tensor("B T H D", memory="new"), at, module=path)
    o = m.op("view", [o], m.tensor("B T C", "out", memory="view", of=o), at, module=path, args=(2, 5, 21))
    at = (30, "return self.c_proj(out)")
    return m.op("linear", [o, m.tensor("C C")], m.tensor("B T C", memory="new"), at, module=f"{path}.c_proj")


def _heads(m: Maker, part: TensorInfo, line: int, path: str) -> TensorInfo:
    name = part.variable or ""
    at = (line, f"{name} = {name}.view(B, T, H, D).transpose(1, 2)")
    part = m.op("view", [part], m.tensor("B T H D", memory="view", of=part), at, module=path, args=(2, 5, 3, 7))
    return m.op("transpose", [part], m.tensor("B H T D", name, memory="view", of=part), at, module=path, args=(1, 2))
