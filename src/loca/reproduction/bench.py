"""A bench: one data set under one protocol, the models that are measured on it, and what they came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from loca.catalogue import MODELS
from loca.data.held_out import Split
from loca.errors import ConfigError
from loca.experiments.candidates import build_models, describe_model
from loca.experiments.cells import Cell, ComparedModel, digest_of_split
from loca.experiments.protocols import ProtocolName, Terms
from loca.experiments.settings import Table
from loca.local.automatic import Auto
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.reproduction.data_sets import StudiedData
from loca.reproduction.exhibit import Value
from loca.reproduction.scale import Scale

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
class Bench:
    """One data set under one protocol; `tables` are the settings of the models, by name."""

    data: StudiedData
    protocol: ProtocolName
    split: Split
    scale: Scale
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
    ) -> Cell:
        """The model as a cell of this bench."""
        terms = Terms(protocol=self.protocol, refit=refit, recency="own", seed=seed)
        return Cell(
            f"{called} seed {seed}", (model,), terms, self.digest, counts=tuple(counts), shares_parts=shares_parts
        )

    def row(self, name: str) -> dict[str, Cell]:
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

    bench: Bench
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
