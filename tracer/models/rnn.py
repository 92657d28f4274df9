"""The recurrent encoder-decoder before the Transformer: one context vector for the whole source, or attention.

Axes: B batch, S source positions, T target positions, C width of a state, V target vocabulary.
`forward` takes the decoder's own input, the target shifted right: `[<s>, y_1, y_2]` predicts `[y_1, y_2, </s>]`.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .axes import gather_axes
from .inputs import check_batch, check_choice, check_pair, check_positive, check_source_ids

__all__ = ["AdditiveAttention", "GRUCell", "Query", "RNNSeq2Seq"]

Query = Literal["previous", "current"]
QUERIES = ("previous", "current")


class GRUCell(nn.Module):
    """One step of a gated recurrent unit: from what is read and the last state to the next state.

    Cho et al. 2014, with the reset gate after the product as in cuDNN; parameter names of `torch.nn.GRUCell`, which
    gives the same numbers. x `[B, X]` and state `[B, C]` in, state `[B, C]` out; X is `n_input`.
    """

    def __init__(self, n_input: int, n_embd: int) -> None:
        super().__init__()
        check_positive(n_input=n_input, n_embd=n_embd)
        self.n_input, self.n_embd = n_input, n_embd
        self.weight_ih = nn.Parameter(torch.empty(3 * n_embd, n_input))  # reads x; the other reads the state
        self.weight_hh = nn.Parameter(torch.empty(3 * n_embd, n_embd))
        self.bias_ih = nn.Parameter(torch.empty(3 * n_embd))
        self.bias_hh = nn.Parameter(torch.empty(3 * n_embd))
        for p in self.parameters():
            nn.init.uniform_(p, -(n_embd**-0.5), n_embd**-0.5)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of both inputs and of every parameter; what is read is C wide or a multiple of it."""
        read = _multiple("n_input", self.n_input, self.n_embd)
        both = {"weight_ih": f"3C {read}", "weight_hh": "3C C", "bias_ih": "3C", "bias_hh": "3C"}
        return {"x": f"B {read}", "state": "B C"} | both

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the cell fixes."""
        return {"C": self.n_embd}

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the next state `[B, C]`."""
        # [B, X] @ [X, 3C] -> [B, 3C]; [B, C] @ [C, 3C] -> [B, 3C]
        x_r, x_z, x_n = F.linear(x, self.weight_ih, self.bias_ih).chunk(3, dim=-1)  # 3 x [B, C]
        s_r, s_z, s_n = F.linear(state, self.weight_hh, self.bias_hh).chunk(3, dim=-1)  # 3 x [B, C]
        reset = torch.sigmoid(x_r + s_r)  # [B, C], how much of the past the proposal may see
        keep = torch.sigmoid(x_z + s_z)  # [B, C], how much of the past stays
        proposal = torch.tanh(x_n + reset * s_n)  # [B, C]
        return (1 - keep) * proposal + keep * state


class AdditiveAttention(nn.Module):
    """One decoder state looks at every encoder state: score = v · tanh(W s + U h), then softmax over the source.

    Bahdanau et al. 2015, section 3.1 and appendix A.1.2. W s + U h is one matrix [W U] on s and h joined. The tanh is
    no ornament: with a linear score the part of s is the same for every h, and the softmax cancels it.
    """

    def __init__(self, n_embd: int, n_memory: int) -> None:
        super().__init__()
        check_positive(n_embd=n_embd, n_memory=n_memory)
        self.n_embd, self.n_memory = n_embd, n_memory
        self.query = nn.Linear(n_embd, n_embd, bias=False)  # W
        self.key = nn.Linear(n_memory, n_embd)  # U
        self.score = nn.Linear(n_embd, 1, bias=False)  # v

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs and of every parameter; states of both directions are 2C wide."""
        wide = _multiple("n_memory", self.n_memory, self.n_embd)
        inputs = {"state": "B C", "memory": f"B S {wide}", "keys": "B S C", "mask": "B S"}
        return inputs | {"query.weight": "C C", "key.weight": f"C {wide}", "key.bias": "C", "score.weight": "1 C"}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the part fixes."""
        return {"C": self.n_embd}

    def forward(self, state: Tensor, memory: Tensor, keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(context, weights)`: `[B, C]` or `[B, 2C]`, and `[B, S]`; `keys` is `self.key(memory)`, `[B, S, C]`.

        `mask` `[B, S]` is True at tokens. A source without any gets weights of zero: a choice (softmax would give NaN).
        """
        query = self.query(state).unsqueeze(1)  # [B, C] -> [B, 1, C]
        hidden = torch.tanh(query + keys)  # [B, 1, C] + [B, S, C] -> [B, S, C]
        # [B, S, C] @ [C, 1] -> [B, S, 1]
        scores = self.score(hidden).squeeze(-1)  # [B, S, 1] -> [B, S]
        scores = scores.masked_fill(~mask, float("-inf"))
        # A row of -inf alone has become NaN, 0 / 0. Zeros are our choice: nothing seen, nothing added.
        weights = F.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
        # [B, 1, S] @ [B, S, C] -> [B, 1, C]
        context = (weights.unsqueeze(1) @ memory).squeeze(1)  # [B, 1, C] -> [B, C]
        return context, weights


class RNNSeq2Seq(nn.Module):
    """A GRU reads the source token by token, another writes the target token by token.

    Without attention all that the decoder gets of the source is the encoder's last state, one vector of C numbers
    however long the source is (Sutskever et al. 2014; Cho et al. 2014). With attention each step reads all states.

    Args:
        n_embd: C, width of embeddings and states.
        vocab_size: V, tokens that can be written.
        src_vocab_size: tokens that can be read; None: as many.
        attention: give each step a context vector of its own.
        query: which state asks. "previous" is Bahdanau's: s[t-1] asks, and the context helps to make s[t]. "current" is
            Luong's (2015): s[t] is made first and asks, and the context helps to choose the token.
        bidirectional: read the source from both ends; a state of the memory is then 2C wide.

    >>> model = RNNSeq2Seq(7, 11, attention=True)
    >>> logits, loss = model(torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long))
    >>> logits.shape
    torch.Size([2, 3, 11])
    """

    own_axes: ClassVar[dict[str, str]] = {
        "src": "B S", "idx": "B T", "targets": "B T", "src_padding": "B S",
        "src_embedding.weight": "V_src C", "embedding.weight": "V C", "head.weight": "V C", "head.bias": "V",
        "bridge.weight": "C 2C", "bridge.bias": "C", "join.weight": "C C", "join.bias": "C",
    }  # fmt: skip

    def __init__(
        self,
        n_embd: int,
        vocab_size: int,
        *,
        src_vocab_size: int | None = None,
        attention: bool = False,
        query: Query = "previous",
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        src_vocab_size = vocab_size if src_vocab_size is None else src_vocab_size
        check_positive(n_embd=n_embd, vocab_size=vocab_size, src_vocab_size=src_vocab_size)
        check_choice("query", query, QUERIES)
        C, wide = n_embd, 2 * n_embd if bidirectional else n_embd
        self.n_embd, self.vocab_size, self.src_vocab_size, self.when = C, vocab_size, src_vocab_size, query
        self.src_embedding = nn.Embedding(src_vocab_size, C)
        self.encoder = GRUCell(C, C)
        self.backward_encoder = GRUCell(C, C) if bidirectional else None
        self.bridge = nn.Linear(wide, C) if bidirectional else None
        self.embedding = nn.Embedding(vocab_size, C)
        early, late = attention and query == "previous", attention and query == "current"
        self.attention = AdditiveAttention(C, wide) if attention else None
        self.decoder = GRUCell(C + wide if early else C, C)
        self.join = nn.Linear(C + wide, C) if late else None
        self.head = nn.Linear(C, vocab_size)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs and of every parameter."""
        stored = dict(self.named_parameters())
        own = {name: axes for name, axes in self.own_axes.items() if "." not in name or name in stored}
        if self.join is not None:
            own["join.weight"] = f"C {self.join.in_features // self.n_embd}C"
        return gather_axes(self, own)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.n_embd, "V": self.vocab_size}

    def forward(
        self, src: Tensor, idx: Tensor, targets: Tensor | None = None, *, src_padding: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return `(logits, loss)`: scores `[B, T, V]`, and their mean cross-entropy in nats, or None without targets.

        Args:
            src: source ids `[B, S]`.
            idx: what the decoder is given, `[B, T]`: the start token, then the target without its last token.
            targets: the next token of each position `[B, T]`; -1 leaves a position out of the mean.
            src_padding: True at tokens, False at padding, `[B, S]`; None: no padding.
        """
        check_batch(idx, targets, self.vocab_size)
        logits, _ = self.decode(src, idx, src_padding=src_padding)
        if targets is None:
            return logits, None
        # [B, T, V] -> [(B T), V]; [B, T] -> [(B T)]
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    def decode(self, src: Tensor, idx: Tensor, *, src_padding: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Return logits `[B, T, V]` and for each of the T steps the weights `[B, S]`; none without attention."""
        memory, state, mask = self.encode(src, src_padding)
        check_pair(src, idx)
        keys = self.attention.key(memory) if self.attention is not None else memory  # [B, S, C], once for all steps
        x = self.embedding(idx)  # [B, T] -> [B, T, C]
        out, looks = torch.zeros_like(x), []
        for t, x_t in enumerate(x.unbind(1)):  # T x [B, C]: step by step, since each state needs the one before
            out[:, t], state, weights = self.step(x_t, state, memory, keys, mask)
            if weights is not None:
                looks.append(weights)
        return self.head(out), looks  # [B, T, C] @ [C, V] -> [B, T, V]

    def attention_map(self, src: Tensor, idx: Tensor, *, src_padding: Tensor | None = None) -> Tensor:
        """Return the share of each source position in what each target position was given, `[B, T, S]`."""
        if self.attention is None:
            raise ValueError("Without attention there are no weights: build RNNSeq2Seq(..., attention=True).")
        check_batch(idx, None, self.vocab_size)
        return torch.stack(self.decode(src, idx, src_padding=src_padding)[1], dim=1)  # T x [B, S] -> [B, T, S]

    def encode(self, src: Tensor, src_padding: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return all states of the encoder `[B, S, C]` (or 2C), the decoder's first `[B, C]`, and the mask `[B, S]`."""
        check_source_ids(src, src_padding, self.src_vocab_size)
        mask = torch.ones_like(src, dtype=torch.bool) if src_padding is None else src_padding
        x = self.src_embedding(src)  # [B, S] -> [B, S, C]
        memory, state = _read(self.encoder, x, mask)
        if self.backward_encoder is None or self.bridge is None:
            return memory, state, mask
        other, first = _read(self.backward_encoder, x.flip(1), mask.flip(1))
        memory = torch.cat([memory, other.flip(1)], dim=-1)  # [B, S, C], [B, S, C] -> [B, S, 2C]
        both = torch.cat([state, first], dim=-1)  # [B, C], [B, C] -> [B, 2C]
        return memory, torch.tanh(self.bridge(both)), mask  # [B, 2C] @ [2C, C] -> [B, C]

    def step(
        self, x: Tensor, state: Tensor, memory: Tensor, keys: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return what the head reads `[B, C]`, the new state `[B, C]`, and the weights `[B, S]` or None."""
        if self.attention is None:
            state = self.decoder(x, state)
            return state, state, None
        if self.join is None:  # "previous": s[t-1] asks
            context, weights = self.attention(state, memory, keys, mask)
            state = self.decoder(torch.cat([x, context], dim=-1), state)  # [B, C], [B, C] -> [B, 2C]
            return state, state, weights
        state = self.decoder(x, state)  # "current": s[t] asks
        context, weights = self.attention(state, memory, keys, mask)
        both = torch.cat([state, context], dim=-1)  # [B, C], [B, C] -> [B, 2C]
        return torch.tanh(self.join(both)), state, weights

    @torch.no_grad()
    def generate(
        self,
        src: Tensor,
        max_new_tokens: int,
        *,
        start: int,
        stop: int | None = None,
        src_padding: Tensor | None = None,
    ) -> Tensor:
        """Return the likeliest token of each step `[B, T]`; after `stop` a row repeats it."""
        check_positive(max_new_tokens=max_new_tokens)
        memory, state, mask = self.encode(src, src_padding)
        keys = self.attention.key(memory) if self.attention is not None else memory
        token = torch.full_like(src[:, 0], start)  # [B]
        check_batch(token.unsqueeze(1), None, self.vocab_size)
        done, found = torch.zeros_like(token, dtype=torch.bool), []
        for _ in range(max_new_tokens):
            out, state, _ = self.step(self.embedding(token), state, memory, keys, mask)
            token = self.head(out).argmax(-1)  # [B, V] -> [B]
            if stop is not None:
                token = token.masked_fill(done, stop)
                done = done | (token == stop)
            found.append(token)
            if done.all():
                break
        return torch.stack(found, dim=1)  # T x [B] -> [B, T]


def _multiple(name: str, size: int, C: int) -> str:
    """Return the axis of `size` features as a multiple of C, or `name` where it is none."""
    return name if size % C else "C" if size == C else f"{size // C}C"


def _read(cell: GRUCell, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state after each position of x `[B, S, C]`, and the last; padding leaves the state as it was."""
    state, states = torch.zeros_like(x[:, 0]), torch.zeros_like(x)  # [B, C], [B, S, C]
    for s, (x_s, real) in enumerate(zip(x.unbind(1), mask.unbind(1), strict=True)):  # S x [B, C], S x [B]
        state = torch.where(real.unsqueeze(-1), cell(x_s, state), state)  # [B, 1] chooses between [B, C] and [B, C]
        states[:, s] = state
    return states, state
