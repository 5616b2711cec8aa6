"""Which processor code computes: Triton kernels where they can be used, plain torch elsewhere."""

from __future__ import annotations

from types import ModuleType

import torch

from loca.models.devices import has_kernels


def kernels_on(device: torch.device) -> ModuleType | None:
    """Return the Triton kernels of the stacked engine; None where a device cannot use them."""
    if not has_kernels(device):
        return None
    from loca.local.engines.stacked import kernels

    return kernels
