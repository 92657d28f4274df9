"""Right answers to the exercises of notebook 10."""

from typing import Any

import torch

RIGHT: dict[str, list[Any]] = {
    "count_parameters": [86256, 86256.0, torch.tensor(86256), torch.tensor([86256.0])],
    "loss_at_start": [2.3, 2.302585, torch.tensor(10.0).log(), 2.33],
    "flat_logits": ["(B T) V", "[(B T), V]", "B*T, V", "[B·T, V]", "((B T), V)"],
}
