"""The types of the functions that `datasets.py` makes of the registry."""

from pathlib import Path
from typing import Protocol

from loca.data.interactions import Interactions
from loca.data.recency import Recency

class _Reader(Protocol):
    def __call__(
        self,
        *,
        folder: str | Path | None = None,
        min_rating: float | None = None,
        min_user_interactions: int = 0,
        recency: Recency | None = None,
    ) -> Interactions: ...

ml_100k: _Reader
ml_1m: _Reader
ml_10m: _Reader
ml_20m: _Reader
ml_25m: _Reader
ml_32m: _Reader
amusic: _Reader
agames: _Reader
yelp: _Reader
games_2018: _Reader
ml_1m_ordered: _Reader

__all__: list[str]
