"""How large a reproduction is: local models, seeds, and the steps at which the paper's figures have points."""

from __future__ import annotations

from dataclasses import dataclass

from loca.errors import ConfigError

_COUNTS = (1, 10, 50, 100, 200, 300)
_FEW_COUNTS = (1, 2, 5, 10, 20)
_MOST = 100_000


@dataclass(frozen=True)
class Scale:
    """The numbers of models and seeds.

    `local_models` are those of Tables 2 and 3 and Figures 4 and 5, `sweep_models` those of DAE, of Table 4 and of every
    point of Figures 7 and 8, `pilot_models` the random anchors of Figure 2. Table 5 trains up to `local_models`
    at once, and up to `loop_models` in a loop; `auto_seconds` is what `auto` may search.
    """

    local_models: int = 300
    sweep_models: int = 100
    pilot_models: int = 100
    loop_models: int = 20
    seeds: int = 3
    auto_seconds: float = 90.0

    def __post_init__(self) -> None:
        for name in ("local_models", "sweep_models", "pilot_models", "loop_models", "seeds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}: expected a whole number ≥ 1, found {value!r}")
            if value > _MOST:
                raise ConfigError(f"{name}: expected at most {_MOST:,}, found {value:,}")
        seconds = self.auto_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(f"auto_seconds: expected a number above 0, found {self.auto_seconds!r}")

    def counts(self, whole: int) -> tuple[int, ...]:
        """The numbers of local models that a figure shows of a whole: the paper's, and the whole."""
        steps = _COUNTS if whole > _COUNTS[2] else _FEW_COUNTS
        return (*(one for one in steps if one < whole), whole)

    def thirds(self, whole: int) -> tuple[int, ...]:
        """The three numbers of local models that Table 3 and Figures 7 and 8 show of a whole: 100 and 200 of 300."""
        return tuple(sorted({max(1, whole * part // 3) for part in (1, 2, 3)}))

    def timed(self) -> tuple[int, ...]:
        """The numbers of local models of Table 5."""
        steps = (1, 2, 5, 10, 15, 20, 50, 100, 300)
        return tuple(one for one in steps if one <= self.local_models)


# Small enough for a few minutes on two cores.
SMALL = Scale(local_models=12, sweep_models=6, pilot_models=10, loop_models=5, seeds=3, auto_seconds=10.0)
