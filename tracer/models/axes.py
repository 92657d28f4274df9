"""Gathers the axes that the parts of a model declare, so that the whole can list every parameter and buffer."""

from torch import nn

__all__ = ["gather_axes"]


def gather_axes(model: nn.Module, own: dict[str, str]) -> dict[str, str]:
    """Return `own` and, by state-dict name, the axes that the parts of `model` declare for parameters and buffers.

    What a part says of its forward inputs stays with it: inside the model those tensors come with names of their own.
    """
    stored = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    stored.update(name for name, _ in model.named_buffers(remove_duplicate=False))
    gathered = dict(own)
    for path, part in model.named_modules():
        if path:
            declared = {f"{path}.{name}": axes for name, axes in getattr(part, "axes", {}).items()}
            gathered.update((name, axes) for name, axes in declared.items() if name in stored)
    return gathered
