"""Train local models in shards, on one machine or many, with the numbers of one process.

Ray is an extra, loca[cluster].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loca.cluster.executor import ShardExecutor
    from loca.cluster.ray_executor import RayExecutor

__all__ = ["RayExecutor", "ShardExecutor"]


def __getattr__(name: str) -> Any:
    if name == "ShardExecutor":
        from loca.cluster.executor import ShardExecutor

        return ShardExecutor
    if name == "RayExecutor":
        from loca.cluster.ray_executor import RayExecutor

        return RayExecutor
    raise AttributeError(f"module 'loca.cluster' has no attribute {name!r}")
