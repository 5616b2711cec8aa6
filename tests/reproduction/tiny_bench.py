"""A bench so small that every piece of the paper is made in seconds."""

from __future__ import annotations

from typing import Any

from loca.data.item_metadata import genres_of_planted
from loca.data.synthetic import PlantedData
from loca.reproduction.benchmark import Benchmark, Sizes
from loca.reproduction.data_sets import StudiedData
from loca.tuning.model_selection import ProtocolName

_NETWORK: dict[str, Any] = {"latent": 8, "epochs": 2, "batch_size": 200, "learning_rate": 0.01}
TABLES: dict[str, dict[str, Any]] = {
    "mult-vae": _NETWORK,
    "mult-dae": _NETWORK,
    "cdae": {"latent": 8, "epochs": 2},
    "rec-vae": {"latent": 8, "hidden": 16, "epochs": 1},
    "wmf": {"factors": 8, "confidence": 5.0, "user_l2": 5.0, "item_l2": 5.0, "iterations": 3},
    "llorma": {"anchors": 3, "factors": 4, "confidence": 5.0, "iterations": 2},
    "sglsvd": {"clusters": 2, "global_rank": 5, "local_rank": 2},
    "loca-vae": {"base": _NETWORK},
    "llorma-vae": {"base": _NETWORK},
    "loca-dae": {"base": _NETWORK},
    "auto": {"seconds": 1.0},
}
TINY = Sizes(local_models=3, sweep_models=3, pilot_models=3, loop_models=2, seeds=2)


def tiny_bench(planted: PlantedData, protocol: ProtocolName = "clean", scale: Sizes = TINY) -> Benchmark:
    """The small planted data under a protocol, with the smallest networks."""
    data = StudiedData("tiny", "tiny", planted.interactions, genres=genres_of_planted(planted))
    return Benchmark(data, protocol, data.split(protocol), scale, TABLES)
