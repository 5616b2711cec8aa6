"""The settings of the models of a benchmark: from a file, found by tuning, or small ones for the built-in data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from loca.config.model_factory import build_models
from loca.config.options import PLANTED
from loca.config.settings import Choice, Given, Table, flat_settings, read_toml
from loca.errors import ConfigError, LocaError, did_you_mean
from loca.experiments.comparison import compare
from loca.experiments.report import settings_file
from loca.persistence.atomic_write import write_whole
from loca.registry import MODELS
from loca.reproduction.benchmark import ALL_NAMES, SMALL, Benchmark, Sizes
from loca.search_space import Budget
from loca.tuning.warm_start import plan_from_settings

Tables = dict[str, Table]
_TUNED_WITH = 40
_FOUND = "settings.toml"
_SIZES = "reproduce"
_SECTIONS = (_SIZES, "compare", "tune", "data", "split", "planted", "recency", "fit", "describe")
_BUILT_IN = Path(__file__).with_name("planted.toml")


def tables_for(name: str, protocol: str, settings: Path | None) -> Tables:
    """The settings of all models on one benchmark: of the file, or of NAME.toml and NAME-PROTOCOL.toml in the folder.

    Where both have a model, NAME-PROTOCOL.toml holds. Without any the built-in data has small networks,
    everything else the defaults.
    """
    files = [_BUILT_IN] if name == PLANTED else []
    if settings is not None:
        files = _files(name, protocol, settings)
    return {model: table for file in files for model, table in _read(file, protocol).items()}


def sizes_for(name: str, protocol: str, settings: Path | None, given: Mapping[str, int]) -> Sizes:
    """The sizes of one benchmark: as given, else as the table `reproduce` of its settings files, else as usual."""
    sizes, known = SMALL if name == PLANTED else Sizes(), [one.name for one in fields(Sizes)]
    for file in () if settings is None else _files(name, protocol, settings):
        table = read_toml(file).get(_SIZES, {})
        if not isinstance(table, dict):
            raise ConfigError(
                f"{file}: {_SIZES}: expected a table of sizes, such as [{_SIZES}] with seeds = 3 below it"
            )
        for key in table:
            if key not in known:
                near = did_you_mean(key, known) or f"; there are {', '.join(known)}"
                raise ConfigError(f"{file}: unknown option {f'{_SIZES}.{key}'!r}{near}")
        try:
            sizes = replace(sizes, **table)
        except ConfigError as error:
            raise ConfigError(f"{file}: {_SIZES}.{error}") from None
    return replace(sizes, **given)


def _files(name: str, protocol: str, settings: Path) -> list[Path]:
    """The files that hold settings of a benchmark; the later one wins."""
    if not settings.is_dir():
        return [settings]
    files = [settings / f"{name}.toml", settings / f"{name}-{protocol}.toml"]
    found = [one for one in files if one.exists()]
    if not found:
        raise ConfigError(f"{settings}: expected {files[0].name} or {files[1].name} in it, the settings of the models")
    return found


def _read(path: Path, protocol: str) -> Tables:
    """The tables of the models in a file; refuses what would make a result that is none."""
    compared = read_toml(path).get("compare", {})
    if protocol == "clean" and isinstance(compared, dict) and compared.get("protocol") == "paper":
        raise ConfigError(
            f"{path}: its settings were chosen on the test items (compare.protocol is paper), which a clean result "
            "must not know; give settings that were found under clean, or ask for --protocol paper"
        )
    elsewhere = tuple(one for one in (*MODELS, *_SECTIONS) if one not in ALL_NAMES)
    found = Given(path).tables((), ALL_NAMES, elsewhere)
    tables = {name: found[name] for name in ALL_NAMES if found[name]}
    for name, value in flat_settings(tables).items():
        if isinstance(value, Choice):
            listed = ", ".join(map(str, value.values))
            raise ConfigError(f"{path}: {name}: expected one value, found a list to choose from ({listed}); keep one")
        if name.split(".")[-1] == "seed":
            raise ConfigError(f"{path}: {name}: every model gets the seeds that --seeds says; leave it out")
    return tables


def tune_models(
    benchmark: Benchmark, names: Sequence[str], budget: Budget, folder: Path, *, processes: int, resume: bool
) -> Tables:
    """The settings of the benchmark, with those that tuning finds for the named models, each under the same budget.

    Trials, results and the file of settings are stored in the folder. Local models are tuned with few of them, because
    the choice of bandwidths carries over to many and the seconds do not.
    """
    few = {"anchors": min(_TUNED_WITH, benchmark.sizes.local_models)}
    tables = {**benchmark.tables}
    for name in (one for one in names if benchmark.model(one).role == "local"):
        tables[name] = {**tables.get(name, {}), **few}
    own = folder / benchmark.name
    models = build_models(names, tables, 0)
    plan = plan_from_settings(models, "wide", {name: tables.get(name, {}) for name in names})
    comparison = compare(
        plan.templates,
        benchmark.split,
        protocol=benchmark.protocol,
        refit=False,
        recency="own",
        budget=budget,
        narrowed=plan.constraints,
        processes=processes,
        keep_in=own,
        resume=resume,
    )
    write_whole(own / _FOUND, settings_file(comparison))
    if comparison.failed:
        # Left out, it would be measured with its defaults beside others that were tuned.
        reasons = "; ".join(f"{name}: {why}" for name, why in comparison.failed.items())
        raise LocaError(f"{benchmark.name}: tuning failed: {reasons}; {own} keeps the others, --resume tries again")
    return tuned_before(benchmark, folder)


def tuned_before(benchmark: Benchmark, folder: Path) -> Tables:
    """The settings of the benchmark, with those that an earlier tuning found, where the folder has any."""
    found = folder / benchmark.name / _FOUND
    return {**benchmark.tables, **(_read(found, benchmark.protocol) if found.exists() else {})}
