"""The settings of the models of a bench: from a file, found by tuning, or small ones for the built-in data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from loca.config.model_factory import build_models
from loca.config.options import PLANTED
from loca.config.settings import Choice, Table, read_section, read_settings, read_toml
from loca.errors import ConfigError, LocaError, did_you_mean
from loca.experiments.comparison import compare
from loca.experiments.report import flat_settings, settings_file
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
# Networks that learn 1,000 users and 150 items in seconds.
_NETWORK: Table = {"latent": 32, "epochs": 40, "patience": 6, "batch_size": 250, "learning_rate": 0.005}
_SMALL: Tables = {
    "mult-vae": {**_NETWORK, "anneal_steps": 0},
    "mult-dae": _NETWORK,
    "cdae": {"latent": 32, "epochs": 30, "patience": 5},
    "rec-vae": {"latent": 32, "hidden": 64, "epochs": 30, "patience": 8, "learning_rate": 0.005, "batch_size": 250},
    "wmf": {"factors": 16, "confidence": 3.0, "user_l2": 30.0, "item_l2": 30.0},
    "llorma": {"anchors": 10, "factors": 16, "confidence": 5.0, "user_l2": 10.0, "item_l2": 10.0},
    "sglsvd": {"global_rank": 15, "local_rank": 5},
}


def tables_for(name: str, protocol: str, settings: Path | None) -> Tables:
    """The settings of all models on one bench: of the file, or of NAME.toml and NAME-PROTOCOL.toml in the folder.

    Of a model that both speak of, NAME-PROTOCOL.toml says all. Without any the built-in data has small networks,
    everything else the defaults.
    """
    if settings is None:
        return _with_bases(_SMALL) if name == PLANTED else {}
    return {model: table for file in _files(name, protocol, settings) for model, table in _read(file, protocol).items()}


def scale_for(name: str, protocol: str, settings: Path | None, said: Mapping[str, int]) -> Sizes:
    """The sizes of one bench: as `said`, else as the table `reproduce` in the files of its settings, else as usual."""
    scale = SMALL if name == PLANTED else Sizes()
    for file in () if settings is None else _files(name, protocol, settings):
        scale = _with_sizes(scale, file)
    return replace(scale, **said)


def _with_sizes(scale: Sizes, file: Path) -> Sizes:
    """The scale with the sizes that the file says; what is no size is refused with the file's name."""
    if not isinstance(read_toml(file).get(_SIZES, {}), dict):
        raise ConfigError(f"{file}: {_SIZES}: expected a table of sizes, such as [{_SIZES}] with seeds = 3 below it")
    written, known = read_section(_SIZES, file, {}, ()), [one.name for one in fields(Sizes)]
    for key in written:
        if key not in known:
            near = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"{file}: unknown option {f'{_SIZES}.{key}'!r}{near}")
    try:
        return replace(scale, **written)
    except ConfigError as error:
        raise ConfigError(f"{file}: {_SIZES}.{error}") from None


def _files(name: str, protocol: str, settings: Path) -> list[Path]:
    """The files that speak of a bench, the later one with more to say."""
    if not settings.is_dir():
        return [settings]
    files = [settings / f"{name}.toml", settings / f"{name}-{protocol}.toml"]
    found = [one for one in files if one.exists()]
    if not found:
        raise ConfigError(f"{settings}: expected {files[0].name} or {files[1].name} in it, the settings of the models")
    return found


def _read(path: Path, protocol: str) -> Tables:
    """The tables of the models in a file; refuses what would make a result that is none."""
    told = read_toml(path).get("compare", {})
    if protocol == "clean" and isinstance(told, dict) and told.get("protocol") == "paper":
        raise ConfigError(
            f"{path}: its settings were chosen on the test items (compare.protocol is paper), which a clean result "
            "must not know; give settings that were found under clean, or ask for --protocol paper"
        )
    elsewhere = tuple(one for one in (*MODELS, *_SECTIONS) if one not in ALL_NAMES)
    found = read_settings(path, {}, [], [], sections=(), models=ALL_NAMES, elsewhere=elsewhere)
    tables = {name: found[name] for name in ALL_NAMES if found[name]}
    for name, value in flat_settings(tables).items():
        if isinstance(value, Choice):
            listed = ", ".join(map(str, value.values))
            raise ConfigError(f"{path}: {name}: expected one value, found a list to choose from ({listed}); keep one")
        if name.split(".")[-1] == "seed":
            raise ConfigError(f"{path}: {name}: every model gets the seeds that --seeds says; leave it out")
    return tables


def _with_bases(tables: Mapping[str, Table]) -> Tables:
    """The tables, and those of local models over the networks in them."""
    bases = {"loca-vae": "mult-vae", "llorma-vae": "mult-vae", "loca-dae": "mult-dae"}
    return {**tables, **{name: {"base": tables[base]} for name, base in bases.items()}}


def tune_bench(
    bench: Benchmark, names: Sequence[str], budget: Budget, folder: Path, *, processes: int, resume: bool
) -> Tables:
    """The settings of the bench, with those that tuning finds for the named models, each under the same budget.

    Trials, results and the file of settings are kept in the folder. Local models are tuned with few of them, because
    the choice of bandwidths carries over to many and the seconds do not.
    """
    few = min(_TUNED_WITH, bench.scale.local_models)
    tables = {**bench.tables}
    for name in (one for one in names if one.startswith("loca-") or one == "llorma-vae"):
        tables[name] = {**tables.get(name, {}), "anchors": few}
    own = folder / bench.name
    models = build_models(names, tables, MODELS, 0)
    plan = plan_from_settings(models, "wide", {name: tables.get(name, {}) for name in names})
    comparison = compare(
        plan.templates,
        bench.split,
        protocol=bench.protocol,
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
        told = "; ".join(f"{name}: {why}" for name, why in comparison.failed.items())
        raise LocaError(f"{bench.name}: tuning failed: {told}; {own} keeps the others, --resume tries again")
    return tuned_before(bench, folder)


def tuned_before(bench: Benchmark, folder: Path) -> Tables:
    """The settings of the bench, with those that an earlier tuning found, where the folder keeps any."""
    found = folder / bench.name / _FOUND
    return {**bench.tables, **(_read(found, bench.protocol) if found.exists() else {})}
