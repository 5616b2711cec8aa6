"""The engine of linear models, stored as their largest differences to one centre."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from loca.errors import ConfigError
from loca.local.engines.differences.solving import differences_memory, solve_differences
from loca.local.engines.engine import Engine, ManyFits
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse
from loca.models.params import whole
from loca.models.recommender import Recommender, clone, get_params

MAX_BYTES = 9_000_000


@dataclass(frozen=True, kw_only=True)
class Differences(Engine):
    """Solve linear models (EASE, NextEASE), and store their largest differences to one centre.

    The centre is the global model, where that is like the local ones, or else one is fitted.

    Parameters
    ----------
    max_bytes : int, default 9000000
        What the differences of one model may take.

    Examples
    --------
    >>> loca.Loca(base=loca.EASE(), engine=loca.Differences(max_bytes=1_000_000)).engine
    Differences(max_bytes=1000000)
    """

    max_bytes: int = whole(MAX_BYTES)

    has_centre: ClassVar[bool] = True

    @classmethod
    def suits(cls, base: Recommender, n_items: int) -> bool:
        """Return whether dense weights of a linear model would take more."""
        return base.is_linear and 4 * n_items**2 > MAX_BYTES

    def check_base(self, base: Recommender) -> None:
        """Refuse a model without weights in closed form."""
        if not base.is_linear:
            raise ConfigError(
                "engine: Differences trains linear models such as EASE and NextEASE, "
                f"found {type(base).__name__}; leave the engine out"
            )

    def prepared(self, fits: ManyFits) -> ManyFits:
        """Return the fits with their centre: the global model if it is like them, or a new one."""
        if fits.centre is not None:
            return fits
        if is_centre_for(fits.base, fits.global_model):
            return replace(fits, centre=fits.global_model)
        everybody = replace(fits.data, user_weights=np.ones_like(fits.data.user_weights))
        return replace(fits, centre=everybody.fit_part("centre", clone(fits.base)))

    def solve(self, fits: ManyFits) -> LocalModels:
        """Solve one model after the other; a GPU solves many small ones at once."""
        assert fits.centre is not None  # `prepared`
        return solve_differences(fits, fits.centre, self.max_bytes)

    def memory(
        self,
        base: Recommender,
        n: int,
        size: DataSize,
        name: str,
        global_model: Recommender | None = None,
    ) -> dict[str, MemoryUse]:
        """Estimate the differences, and the centre where it is a model of its own."""
        steps: dict[str, MemoryUse] = {}
        if not is_centre_for(base, global_model):
            steps["centre of local models"] = base.memory_bytes(size)
        steps[name] = differences_memory(base, n, self.max_bytes, size)
        return steps


def is_centre_for(base: Recommender, model: Recommender | None) -> bool:
    """Return whether local copies of the base may be stored as differences to a model."""
    return type(model) is type(base) and get_params(model) == get_params(base)
