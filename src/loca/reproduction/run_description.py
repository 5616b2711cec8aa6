"""What was run, for the end of the report: sizes, settings, versions, machines and seconds."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import loca
from loca.experiments.fitted_facts import describe_machine
from loca.experiments.report import flat_settings
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.reproduction.bench import Bench, Results
from loca.reproduction.exhibit import Provenance, Value

_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "polars", "matplotlib")


def describe_run(command: str, studied: Sequence[Results]) -> Provenance:
    """What the results come from: wherever a cell was computed, it says so itself."""
    settings: dict[str, Value] = {}
    for results in studied:
        settings |= _settings(results)
    return Provenance(
        commands=(command,),
        settings=settings,
        versions={"loca": loca.__version__, "python": platform.python_version(), **_versions()},
        machine=_machines(studied),
        seconds={one.bench.title: one.seconds for one in studied},
    )


def _settings(results: Results) -> dict[str, Value]:
    """The sizes of a bench and the settings of its models, where they are not the defaults."""
    bench = results.bench
    told: dict[str, Value] = {
        f"{bench.title}: users, items": f"{bench.split.train.n_users:,}, {bench.split.train.n_items:,}",
        f"{bench.title}: sizes": _joined({name.replace("_", " "): value for name, value in vars(bench.scale).items()}),
    }
    measured = {called.split(" seed ")[0] for called in results.cells}
    for name in (one for one in bench.names if one in measured):
        told[f"{bench.title}: {name}"] = _joined(_given(bench, name)) or "defaults"
    return told


def _given(bench: Bench, name: str) -> dict[str, Value]:
    """The settings that a model was given, with the number of its models as the sizes have it."""
    given, model = flat_settings(bench.tables.get(name, {})), bench.model(name)
    if isinstance(model, Loca):
        return given | {"anchors": model.anchors}
    return given | {"models": model.models} if isinstance(model, Ensemble) else given


def _joined(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _versions() -> dict[str, str]:
    """Of the libraries that are installed."""
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _machines(studied: Sequence[Results]) -> Mapping[str, str]:
    """The machines that cells were computed on, and how many each; the one that wrote the page."""
    found: dict[str, int] = {}
    for results in studied:
        for one in results.cells.values():
            told = f"{one.found.get('machine', 'unknown')}, torch {one.found.get('torch', 'unknown')}"
            found[told] = found.get(told, 0) + 1
    return {
        **{told: f"{count} cells" for told, count in found.items()},
        f"{describe_machine()}, {sys.platform}": "this page",
    }
