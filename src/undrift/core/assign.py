"""The assignment problem as an operation of PyTorch, so that whoever counts operations sees it.

`torch.ops.undrift.assign(cost)` is scipy's Hungarian algorithm. As a plain call out of PyTorch it would be invisible to the
diagnostic `cost`, although it is most of what a method that matches units does.
"""

from __future__ import annotations

import torch


@torch.library.custom_op("undrift::assign", mutates_args=())
def assign(cost: torch.Tensor) -> torch.Tensor:
    """For each row of a square cost matrix the column assigned to it, at the least total cost."""
    from scipy.optimize import linear_sum_assignment  # takes 0.7 s, and a site starts a process per message

    return torch.from_numpy(linear_sum_assignment(cost.numpy())[1])
