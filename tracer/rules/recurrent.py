"""Rules for recurrent calls: all steps of an RNN, GRU or LSTM, or one; the state keeps its axis of hidden features."""

from .core import Axes, Axis, Step, Tensor, rule
from .products import contract, made_by_weights

__all__: list[str] = []


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(step: Step) -> list[Axes]:
    """x, state, weights, ...; or, packed: rows, sizes of the batch at each step, state, weights, ..."""
    x = step.tensor()
    packed = type(step.args[3]) is tuple
    state, weights = step.args[1 + packed : 3 + packed]
    states: tuple[Tensor, ...] = state if type(state) is tuple else (state,)
    h = states[0]
    maps = [w for w in weights if w.rank == 2]
    projected = h.shape[-1] != states[-1].shape[-1]
    hidden = _hidden(step, x, h.axes[-1], list(weights), maps[1 :: 3 if projected else 2])
    batch = h.axes[1] if packed else step.meet(x.axes[0 if step.args[8] else 1], h.axes[1])  # batch_first
    made = Axis(step.space.scaled(hidden.term, 2, 1)) if step.args[7 + packed] else hidden  # bidirectional
    cells = [[s.axes[0], batch, s.axes[2] if projected else step.meet(hidden, s.axes[2])] for s in states[1:]]
    return [[*x.axes[:-1], made], [h.axes[0], batch, hidden], *cells]


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(step: Step) -> list[Axes]:
    x, state = step.tensor(), step.args[1]
    states: tuple[Tensor, ...] = state if type(state) is tuple else (state,)
    weights = [w for w in step.args[2:] if isinstance(w, Tensor)]
    hidden = _hidden(step, x, states[0].axes[-1], weights, weights[1:2])
    rows = [step.meet(a, b) for a, b in zip(x.axes[:-1], states[0].axes[:-1], strict=True)]
    return [[*rows, step.meet(hidden, s.axes[-1])] for s in states]


def _hidden(step: Step, x: Tensor, state: Axis, weights: list[Tensor], recurrent: list[Tensor]) -> Axis:
    """Return the axis of the hidden features: what the state has, and what each recurrent map reads."""
    contract(step, x, x.axes[-1], weights[0], weights[0].axes[-1])
    for w in weights:
        for i, axis in enumerate(w.axes):
            if not (i == 1 and (w is weights[0] or w in recurrent)):
                step.space.disown(axis.term)  # gates, and what one layer hands to the next
    for w in recurrent:
        state = step.meet(state, w.axes[-1])
    made_by_weights(step, x.axes[-1], state)
    return state


@rule("_pack_padded_sequence")
def _pack(step: Step) -> list[Axes]:
    x = step.tensor()
    return [[*step.fresh(step.outs[0][:1]), *x.axes[2:]], step.fresh(step.outs[1])]


@rule("_pad_packed_sequence")
def _unpack(step: Step) -> list[Axes]:
    return [[*step.fresh(step.outs[0][:2]), *step.tensor().axes[1:]], step.fresh(step.outs[1])]
