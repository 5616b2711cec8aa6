"""torch, loaded when it is first used and not before: that takes a second, and a saved linear model answers without.

A module that may be needed for such an answer writes `from loca.deferred import torch`, and names nothing of torch at
its top level; for type checkers that is torch itself. All others import torch as ever.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


class _Torch(ModuleType):
    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)


torch = _Torch("torch")
