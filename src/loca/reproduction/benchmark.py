"""A bench: one data set under one protocol, the models that are measured on it, and what they came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.config.model_factory import build_models, describe_model
from loca.config.settings import Table
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.evaluation.evaluate import Evaluation
from loca.evaluation.significance import PairedDifference, bootstrap_intervals, paired_difference
from loca.experiments.runs import ComparedModel, Run, digest_of_split
from loca.local.auto import Auto
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.registry import MODELS
from loca.reproduction.data_sets import StudiedData
from loca.reproduction.report_items import Value
from loca.tuning.model_selection import EvaluationProtocol, ProtocolName

_COUNTS = (1, 10, 50, 100, 200, 300)
_FEW_COUNTS = (1, 2, 5, 10, 20)
_MOST = 100_000


@dataclass(frozen=True)
class Sizes:
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
SMALL = Sizes(local_models=12, sweep_models=6, pilot_models=10, loop_models=5, seeds=3, auto_seconds=10.0)


Records = list[dict[str, Value]]

SINGLES = ("popularity", "item-knn", "wmf", "slim", "cdae", "mult-dae", "mult-vae", "ease", "rec-vae")
# The rivals; the last two are of many local models themselves.
BASELINES = (*SINGLES, "llorma", "sglsvd")
LOCALS = ("loca-vae", "loca-ease", "loca-dae")
CONTROLS = ("ensemble-vae", "ensemble-ease", "ensemble-dae", "llorma-vae")
# The paper's models with its authors' own settings, for the data sets and the protocol that it prints figures of.
AUTHORS = ("loca-paper-vae", "loca-paper-ease")
# What the paper does not have: models that use the order of histories, and blends.
BEYOND = ("next-ease", "auto")
ALL_NAMES = (*BASELINES, *LOCALS, *CONTROLS, *AUTHORS, *BEYOND)
# Their figures by number of local models are wanted too.
_COUNTED = ("loca-vae", "llorma-vae", "ensemble-vae", "loca-dae", "ensemble-dae")
_OF_DAE = ("loca-dae", "ensemble-dae")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One data set under one protocol; `tables` are the settings of the models, by name."""

    data: StudiedData
    protocol: ProtocolName
    split: Split
    scale: Sizes
    tables: Mapping[str, Table] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the bench is called in the names of files."""
        return f"{self.data.name}-{self.protocol}"

    @property
    def title(self) -> str:
        """What the bench is called for people to read."""
        return f"{self.data.label}, {self.protocol}"

    @property
    def names(self) -> tuple[str, ...]:
        """The models that are measured: those beyond the paper under `clean`, the authors' settings beside print."""
        of_protocol = BEYOND if self.protocol == "clean" else AUTHORS if self.data.printed is not None else ()
        return (*BASELINES, *LOCALS, *CONTROLS, *of_protocol)

    @cached_property
    def digest(self) -> str:
        return digest_of_split(self.split)

    @cached_property
    def _built(self) -> dict[int, dict[str, list[Recommender]]]:
        """All models by seed, made when the first of a seed is asked for; they are given out as copies."""
        return {}

    def model(self, name: str, seed: int = 0) -> Recommender:
        """The named model by its settings, unfitted; local models and ensembles have as many as the scale says."""
        if seed not in self._built:
            self._built[seed] = build_models(ALL_NAMES, self.tables, MODELS, seed)
        built = clone(self._built[seed][name][0])
        size = self.scale.sweep_models if name in _OF_DAE else self.scale.local_models
        if isinstance(built, Loca):
            return clone(built, anchors=size)
        if isinstance(built, Ensemble):
            return clone(built, models=size)
        if isinstance(built, Auto) and "seconds" not in self.tables.get(name, {}):
            return clone(built, seconds=self.scale.auto_seconds)
        return built

    def check(self) -> None:
        """Refuses settings that no model can have, before anything is computed or dropped."""
        build_models(ALL_NAMES, self.tables, MODELS, 0)

    def check_size(self, names: Sequence[str]) -> None:
        """Refuses more local models than there are users for them, where the named models have any."""
        users = self.split.train.n_users
        sizes = {"--local-models": self.scale.local_models, "--sweep-models": self.scale.sweep_models}
        for option, size in sizes.items():
            if size > users and any(name in (*LOCALS, *CONTROLS) for name in names):
                raise ConfigError(
                    f"{self.name}: {size} local models need as many users, found {users}; take fewer, {option}"
                )

    def seeds_of(self, name: str) -> tuple[int, ...]:
        """The seeds that the model is fitted with: one where nothing in it is drawn."""
        is_drawn = any(key.split(".")[-1] == "seed" for key in describe_model(self.model(name)))
        return tuple(range(self.scale.seeds)) if is_drawn else (0,)

    def cell(
        self,
        called: str,
        model: Recommender,
        seed: int,
        *,
        counts: Sequence[int] = (),
        refit: bool = True,
        shares_parts: bool = False,
    ) -> Run:
        """The model as a cell of this bench."""
        terms = EvaluationProtocol(protocol=self.protocol, refit=refit, recency="own", seed=seed)
        return Run(
            f"{called} seed {seed}", (model,), terms, self.digest, counts=tuple(counts), shares_parts=shares_parts
        )

    def row(self, name: str) -> dict[str, Run]:
        """The cells of a row of Table 2: the model with each of its seeds."""
        cells = {}
        for seed in self.seeds_of(name):
            model = self.model(name, seed)
            counts: tuple[int, ...] = ()
            if name in _COUNTED and isinstance(model, Loca | Ensemble):
                counts = self.scale.counts(model.anchors if isinstance(model, Loca) else model.models)
            cell = self.cell(name, model, seed, counts=counts)
            cells[cell.name] = cell
        return cells


@dataclass(frozen=True, eq=False)
class Results:
    """What came of a bench: the computed cells by name, and the records of everything that is no cell.

    `measuring_seconds` is what the records took.
    """

    bench: Benchmark
    cells: Mapping[str, ComparedModel]
    records: Mapping[str, Records] = field(default_factory=dict)
    measuring_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """What all of it took, wherever it was computed."""
        return sum(cell.seconds for cell in self.cells.values()) + self.measuring_seconds

    def of(self, called: str) -> list[ComparedModel]:
        """The computed cells of that name, seed after seed; nothing where it was not computed."""
        found = (self.cells.get(f"{called} seed {seed}") for seed in range(self.bench.scale.seeds))
        return [one for one in found if one is not None]

    def lacks_seeds(self, called: str) -> bool:
        """Whether cells of that name were computed, but not with all the seeds of their model."""
        return 0 < len(self.of(called)) < self._seeds(called)

    def named(self, called: str, label: str) -> str:
        """The label, and with how many of its seeds it was computed, where some are missing."""
        return f"{label} ({len(self.of(called))} of {self._seeds(called)} seeds)" if self.lacks_seeds(called) else label

    def _seeds(self, called: str) -> int:
        return len(self.bench.seeds_of(called.split(" ")[0]))


def labelled(name: str) -> str:
    """The name of a model as the paper writes it."""
    written = {
        "wmf": "WMF", "slim": "SLIM", "cdae": "CDAE", "mult-dae": "MultDAE", "mult-vae": "MultVAE", "ease": "EASE",
        "rec-vae": "RecVAE", "llorma": "LLORMA", "sglsvd": "sGLSVD", "item-knn": "ItemKNN",
        "popularity": "Popularity", "loca-vae": "LOCA_VAE", "loca-ease": "LOCA_EASE", "loca-dae": "LOCA_DAE",
        "ensemble-vae": "Ensemble_VAE", "ensemble-ease": "Ensemble_EASE", "ensemble-dae": "Ensemble_DAE",
        "llorma-vae": "LLORMA_VAE", "next-ease": "NextEASE", "auto": "Auto",
        "loca-paper-vae": "LOCA_VAE, authors' settings", "loca-paper-ease": "LOCA_EASE, authors' settings",
    }  # fmt: skip
    return written.get(name, name)


def base_of(name: str) -> str:
    """The single model that a local model or ensemble is built on."""
    kind = name.split("-", 1)[1].removeprefix("paper-")
    return kind if kind == "ease" else f"mult-{kind}"


def as_value(value: Any) -> Value:
    """A value as a line of CSV holds it."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


METRICS = ("recall@50", "ndcg@50", "recall@100", "ndcg@100")
MAIN = "ndcg@100"


@dataclass(frozen=True, eq=False)
class SeedMeans:
    """The evaluations of one model, one for each seed, over the same users."""

    evaluations: tuple[Evaluation, ...]

    def of_users(self, metric: str = MAIN) -> npt.NDArray[np.float64]:
        """Each user's mean over the seeds."""
        values = [one.values[metric] for one in self.evaluations]
        return np.asarray(np.mean(values, axis=0), dtype=np.float64)

    def mean(self, metric: str = MAIN) -> float:
        return float(self.of_users(metric).mean())

    def interval(self, metric: str = MAIN) -> tuple[float, float]:
        """The 95 % bootstrap interval over users of the mean over seeds."""
        ((low, high),) = bootstrap_intervals(self.of_users(metric)[:, None], seed=0).tolist()
        return low, high

    def of_seeds(self, metric: str = MAIN) -> tuple[float, ...]:
        """The mean over users of each seed."""
        return tuple(float(one.values[metric].mean()) for one in self.evaluations)

    def spread(self, metric: str = MAIN) -> float | None:
        """The standard deviation over the seeds; None where there is one seed."""
        return spread_of(self.of_seeds(metric))

    def told(self, metric: str = MAIN) -> str:
        """The mean and, after ±, the spread over seeds, where there is one."""
        return with_spread(self.mean(metric), self.spread(metric))

    def minus(self, other: SeedMeans, metric: str = MAIN) -> PairedDifference:
        """The paired difference over users of the means over seeds."""
        return paired_difference(self.of_users(metric), other.of_users(metric), seed=0)


def spread_of(seeds: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None where there is one."""
    return float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None


def with_spread(mean: float, spread: float | None) -> str:
    """A mean and, after ±, its spread over seeds, where there is one."""
    return f"{mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def in_words(paired: PairedDifference, of: str = "") -> str:
    """A difference in percent, of what, and its interval."""
    return f"{paired.relative:+.1%}{of} [{paired.low:+.4f}, {paired.high:+.4f}]"


def over_seeds(measured: Sequence[ComparedModel], count: int | None = None) -> SeedMeans | None:
    """The means of computed cells, or of their first `count` models; None where nothing was computed."""
    found = [one.evaluation if count is None else one.by_count[count] for one in measured]
    return SeedMeans(tuple(found)) if found else None


def chosen_by(measured: Iterable[ComparedModel]) -> float:
    """The mean over seeds of the NDCG@100 by which the model was chosen: never that of the result."""
    return float(np.mean([one.tried[one.chosen].ndcg for one in measured]))
