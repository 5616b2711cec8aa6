"""A benchmark: one data set under one protocol, its settings, the runs and measurements on it, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from loca.config.model_factory import build_models, describe_model, with_kernels
from loca.config.options import PLANTED
from loca.config.settings import Choice, Given, Table, flat_settings, read_toml
from loca.data.datasets import DATA_SETS
from loca.data.download import data_folder, find_below
from loca.data.id_map import Id
from loca.data.interactions import Interactions
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, LocaError, check_counts, did_you_mean
from loca.experiments.comparison import compare
from loca.experiments.report import settings_file
from loca.experiments.runs import ComparedModel, Run
from loca.models.recommender import Recommender, clone
from loca.paper.charts import Chart
from loca.paper.report import Finding, Records, ReportItem, ReportTable, Value
from loca.paper.seed_means import METRICS, SeedMeans, as_values, labelled
from loca.persistence.atomic_write import write_whole
from loca.persistence.manifest import fingerprint, stored_params
from loca.registry import KERNEL_PARAMS, MODELS, names_of
from loca.search_space import Budget
from loca.tuning.model_selection import EvaluationProtocol, ProtocolName, counted_as_paper
from loca.tuning.warm_start import plan_from_settings

Genres = dict[Id, tuple[str, ...]]
_TEST = 5
_LEAST_HISTORY = 10
# The same ratings in another file: whole timestamps are not always to be had.
_INSTEAD = {"ml-1m": "ml-1m-ordered"}


@dataclass(frozen=True, eq=False)
class StudiedData:
    """Interactions to be studied, distinct pairs of users with at least 10, and, where the paper has them, as it has.

    `printed` is the name under which the paper's tables hold the same data.
    """

    name: str
    label: str
    interactions: Interactions
    validation: int = 2
    printed: str | None = None
    as_printed: Interactions | None = None
    genres: Genres = field(default_factory=dict)

    def split(self, protocol: ProtocolName) -> Split:
        """The last 5 of each user are test; `clean` holds out some before them, `paper` nothing, and counts repeats."""
        if protocol == "paper":
            chosen = self.interactions if self.as_printed is None else self.as_printed
            return counted_as_paper(leave_last_out(chosen, test=_TEST))
        return leave_last_out(self.interactions, test=_TEST, validation=self.validation)


def open_data(name: str, *, seed: int = 0) -> StudiedData:
    """The data of that name or path, read now; one that is not there is refused with the places looked in."""
    from loca.data.item_metadata import genres_of_planted, read_genres, read_titles
    from loca.data.readers import layout_of, read_interactions, read_preset

    if name == PLANTED:
        planted = planted_communities(users=1000, items=150, seed=seed)
        return StudiedData(
            PLANTED, "planted", planted.interactions, genres=genres_of_planted(planted)
        )
    if name not in DATA_SETS:
        if not Path(name).exists():
            known = [PLANTED, *(one for one in DATA_SETS if one not in _INSTEAD.values())]
            near = did_you_mean(name, known) or f"; known by name are {', '.join(known)}"
            raise ConfigError(
                f"data {name!r}: there is no such file, and no data set of that name{near}"
            )
        # As text that can be written, and distinguished from what is known by name.
        called = Path(name).name.encode("utf-8", "replace").decode()
        interactions = read_interactions(name, min_user_interactions=_LEAST_HISTORY)
        return StudiedData(
            f"{called} (file)" if called in (PLANTED, *DATA_SETS) else called, called, interactions
        )
    below, other = data_folder(), _INSTEAD.get(name, name)
    data_set, path = DATA_SETS[name], find_below(below, DATA_SETS[name].files)
    if path is None and (path := find_below(below, DATA_SETS[other].files)) is not None:
        data_set = DATA_SETS[other]
    if path is None:
        # Not all can be fetched: some are only near what is published.
        fetching = f", or get it with  loca data fetch {name}" if data_set.addresses else ""
        raise ConfigError(
            f"data {name!r}: expected {data_set.files[0]} below {below}; set LOCA_DATA to the folder that "
            f"holds it{fetching}"
        )
    preset = None if data_set.printed is None else data_set.label
    printed = None if preset is None else read_preset(preset, path)
    layout = layout_of(data_set, path)
    interactions, genres = (
        read_interactions(path, layout=layout, min_user_interactions=_LEAST_HISTORY),
        Genres(),
    )
    if (titles := find_below(below, data_set.titles)) is not None:
        genres, title_of = dict(read_genres(titles)), read_titles(titles)
        interactions = interactions.with_titles(title_of)
        printed = None if printed is None else printed.with_titles(title_of)
    return StudiedData(
        name, data_set.label, interactions, data_set.validation, preset, printed, genres
    )


_MOST = 100_000

BASELINES = names_of("baseline")
# The last two are of many local models themselves.
SINGLES = BASELINES[:-2]
LOCALS = names_of("local")
CONTROLS = names_of("control")
# The paper's models with its authors' settings, for the data sets and the protocol that it prints figures of.
AUTHORS = names_of("authors")
# Communities by mixtures, each followed by its control: the same memberships dealt to other users.
MIXTURES = names_of("mixture")
# What the paper does not have: those, models that use the order of histories, and blends.
BEYOND = (*MIXTURES, *names_of("beyond"))
ALL_NAMES = (*BASELINES, *LOCALS, *CONTROLS, *AUTHORS, *BEYOND)
# Their figures by number of local models are wanted too.
_COUNTED = ("loca-vae", "llorma-vae", "ensemble-vae", "loca-dae", "ensemble-dae")
_OF_DAE = ("loca-dae", "ensemble-dae")
# What the settings of a kernels' row say of kernels alone.
_OF_KERNELS = ("communities", "embedding", *KERNEL_PARAMS)
# The parameter that says how many models a model of many has.
SIZE_PARAMETERS = {"local": "anchors", "ensemble": "models"}


@dataclass(frozen=True)
class Sizes:
    """The numbers of models and seeds.

    Parameters
    ----------
    local_models
        Local models of Tables 2 and 3 and Figures 4 and 5, and the most that Table 5 trains at once.
    sweep_models
        Local models over DAE, of Table 4 and of every point of Figures 7 and 8.
    pilot_models
        Random anchors of Figure 2.
    loop_models
        The most models that Table 5 trains in a loop.
    seeds
        Seeds of every model that draws anything.
    auto_seconds
        How long `auto` may search.
    """

    local_models: int = 300
    sweep_models: int = 100
    pilot_models: int = 100
    loop_models: int = 20
    seeds: int = 3
    auto_seconds: float = 90.0

    def __post_init__(self) -> None:
        counts = {name: value for name, value in vars(self).items() if name != "auto_seconds"}
        check_counts(**counts)
        for name, value in counts.items():
            if value > _MOST:
                raise ConfigError(f"{name}: expected at most {_MOST:,}, found {value:,}")
        seconds = self.auto_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(
                f"auto_seconds: expected a number above 0, found {self.auto_seconds!r}"
            )

    def counts(self, whole: int) -> tuple[int, ...]:
        """The numbers of local models that a figure shows of a whole: the paper's, and the whole."""
        steps = (1, 10, 50, 100, 200, 300) if whole > 50 else (1, 2, 5, 10, 20)
        return (*(one for one in steps if one < whole), whole)

    def thirds(self, whole: int) -> tuple[int, ...]:
        """The three numbers of local models that Table 3 and Figures 7 and 8 show of a whole: 100 and 200 of 300."""
        return tuple(sorted({max(1, whole * part // 3) for part in (1, 2, 3)}))

    def timed(self) -> tuple[int, ...]:
        """The numbers of local models of Table 5."""
        return tuple(one for one in (1, 2, 5, 10, 15, 20, 50, 100, 300) if one <= self.local_models)


# Small enough for a few minutes on two cores.
SMALL = Sizes(
    local_models=12, sweep_models=6, pilot_models=10, loop_models=5, seeds=3, auto_seconds=10.0
)


class RunKey(NamedTuple):
    """Which run of a benchmark: the model, what is varied about it (nothing in Table 2), and the seed."""

    model: str
    variant: str
    seed: int

    def __str__(self) -> str:
        return " ".join(filter(None, (self.model, self.variant, f"seed {self.seed}")))


Runs = dict[RunKey, Run]
# The records of a measurement, and the seconds that they took.
Measured = tuple[Records, float]


@dataclass(frozen=True, eq=False)
class Measurement:
    """Something that is no model's run, such as a timing or a case study.

    Parameters
    ----------
    name
        What it is stored under.
    inputs
        All that its records depend on, as JSON values.
    measure
        How the records are made.
    """

    name: str
    inputs: Mapping[str, Any]
    measure: Callable[[], Records]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One data set under one protocol; `tables` are the settings of the models, by name."""

    data: StudiedData
    protocol: ProtocolName
    split: Split
    sizes: Sizes
    tables: Mapping[str, Table] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in the names of files."""
        return f"{self.data.name}-{self.protocol}"

    @property
    def title(self) -> str:
        """The name for people to read."""
        return f"{self.data.label}, {self.protocol}"

    @property
    def printed_as(self) -> str | None:
        """The name of the data in the paper's tables; None where its data is not the same.

        Only `paper` has the interactions that the figures are printed for: `clean` has each pair once, and other users.
        """
        return self.data.printed if self.protocol == "paper" else None

    @property
    def names(self) -> tuple[str, ...]:
        """The models that are measured: those beyond the paper under `clean`, the authors' settings beside print."""
        of_protocol = (
            BEYOND if self.protocol == "clean" else AUTHORS if self.data.printed is not None else ()
        )
        return (*BASELINES, *LOCALS, *CONTROLS, *of_protocol)

    @cached_property
    def digest(self) -> str:
        return fingerprint(self.split)

    @cached_property
    def _built(self) -> dict[int, dict[str, list[Recommender]]]:
        """All models by seed, made when the first of a seed is needed; copies of them are given out."""
        return {}

    def settings_of(self, name: str) -> Table:
        """The settings of a model; mixtures without their own have those of the kernels' row, dealt ones theirs."""
        kind, table = name.partition("-")[2], dict[str, Any]()
        if name in MIXTURES:
            for other in (f"loca-{kind}", f"mixture-{kind}"):
                table |= {
                    key: one
                    for key, one in self.tables.get(other, {}).items()
                    if key not in _OF_KERNELS
                }
        return table | dict(self.tables.get(name, {}))

    def _build(self, seed: int) -> dict[str, list[Recommender]]:
        return build_models(
            ALL_NAMES, {**self.tables, **{one: self.settings_of(one) for one in MIXTURES}}, seed
        )

    def model(self, name: str, seed: int = 0) -> Any:
        """The named model by its settings, unfitted; local models and ensembles have as many as the sizes say."""
        if seed not in self._built:
            self._built[seed] = self._build(seed)
        model: Any = clone(with_kernels(self._built[seed][name][0]))  # the paper's
        if model.role in SIZE_PARAMETERS:
            size = self.sizes.sweep_models if name in _OF_DAE else self.sizes.local_models
            return of_size(model, size)
        if model.role == "auto" and "seconds" not in self.tables.get(name, {}):
            return clone(model, seconds=self.sizes.auto_seconds)
        return model

    def check(self) -> None:
        """Refuses settings that no model can have, before anything is computed or dropped."""
        self._build(0)

    def check_size(self, names: Sequence[str]) -> None:
        """Refuses more local models than there are users for them, where the named models have any."""
        users = self.split.train.n_users
        sizes = {
            "--local-models": self.sizes.local_models,
            "--sweep-models": self.sizes.sweep_models,
        }
        for option, size in sizes.items():
            if size > users and any(name in (*LOCALS, *CONTROLS, *MIXTURES) for name in names):
                raise ConfigError(
                    f"{self.name}: {size} local models need as many users, found {users}; take fewer, {option}"
                )

    def seeds_of(self, name: str) -> tuple[int, ...]:
        """The seeds that the model is fitted with: one where nothing in it is drawn."""
        is_drawn = any(key.split(".")[-1] == "seed" for key in describe_model(self.model(name)))
        return tuple(range(self.sizes.seeds)) if is_drawn else (0,)

    def run(
        self,
        key: RunKey,
        model: Recommender,
        *,
        counts: Sequence[int] = (),
        refit: bool = True,
        shares: bool = False,
    ) -> Run:
        """The model as a run of this benchmark; with `shares` runs fit the parts that they share once."""
        protocol = EvaluationProtocol(
            protocol=self.protocol, refit=refit, recency="own", seed=key.seed
        )
        return Run(
            str(key), (model,), protocol, self.digest, counts=tuple(counts), shares_parts=shares
        )

    def rows(self, names: Iterable[str]) -> Runs:
        """The runs of rows of Table 2: each model with each of its seeds."""
        runs = {}
        for key in (RunKey(name, "", seed) for name in names for seed in self.seeds_of(name)):
            model = self.model(key.model, key.seed)
            is_counted = key.model in _COUNTED
            counts = (
                self.sizes.counts(model.get_params()[SIZE_PARAMETERS[model.role]])
                if is_counted
                else ()
            )
            runs[key] = self.run(key, model, counts=counts)
        return runs

    def varied(
        self, variant: str, counts: Sequence[int], name: str = "loca-vae", /, **changes: Any
    ) -> Runs:
        """A local model with some parameters changed and as many models as the largest of `counts`, for each seed.

        The global model has no share in the answers of covered users, as in the paper, so that what is varied shows. A
        sweep is not refitted on validation: it is there to be compared with itself. The runs of a seed have one global
        model, which is fitted once.
        """
        runs, is_mixed = {}, name in MIXTURES
        for key in (RunKey(name, variant, seed) for seed in range(self.sizes.seeds)):
            varied = {"anchor_selection": "coverage", "alpha": "paper", **changes}
            model = clone(of_size(self.model(key.model, key.seed), max(counts)), **varied)
            # The first communities of a mixture are no mixture of fewer.
            runs[key] = self.run(
                key, model, counts=() if is_mixed else counts, refit=False, shares=True
            )
        return runs

    def measurements(
        self, name: str, measure: Callable[[Benchmark, int], Records], **others: Any
    ) -> list[Measurement]:
        """One measurement with MultVAE for each seed."""
        found = []
        for seed in range(self.sizes.seeds):
            inputs = self.inputs_of(self.model("mult-vae", seed), protocol=self.protocol, **others)
            found.append(Measurement(f"{name} seed {seed}", inputs, partial(measure, self, seed)))
        return found

    def inputs_of(self, model: Recommender, **others: Any) -> dict[str, Any]:
        """All that a measurement depends on: the split, a model to the last bit, and what else is named."""
        described = describe_model(model, stored_params)
        return {"data": self.digest, **others, **described, "to the last bit": fingerprint(model)}


def of_size(model: Any, size: int) -> Any:
    """A local model or an ensemble with so many models; mixtures are no more than that."""
    mixtures = (
        {"mixtures": min(model.mixtures, size)}
        if getattr(model, "communities", "kernel") != "kernel"
        else {}
    )
    return clone(model, **{SIZE_PARAMETERS[model.role]: size}, **mixtures)


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a benchmark: the finished runs, and by name the records of measurements and their seconds."""

    benchmark: Benchmark
    runs: Mapping[RunKey, ComparedModel]
    measured: Mapping[str, Measured] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long all of it took, wherever it was computed."""
        return sum(run.seconds for run in self.runs.values()) + sum(
            seconds for _, seconds in self.measured.values()
        )

    @property
    def names(self) -> set[str]:
        """The names of all finished runs and measurements."""
        return {*map(str, self.runs), *self.measured}

    def of(self, model: str, variant: str = "") -> list[ComparedModel]:
        """The finished runs of a model, seed after seed; nothing where it was not computed."""
        keys = (RunKey(model, variant, seed) for seed in range(self.benchmark.sizes.seeds))
        return [self.runs[key] for key in keys if key in self.runs]

    def means(self, model: str, variant: str = "", count: int | None = None) -> SeedMeans | None:
        """The means over seeds of a model, or of its first `count` models; None where it was not computed."""
        runs = self.of(model, variant)
        found = tuple(one.evaluation if count is None else one.by_count[count] for one in runs)
        return SeedMeans(found) if found else None

    def text(self, model: str, variant: str = "", count: int | None = None) -> str:
        """The NDCG@100 of a model with its spread over seeds; nothing where it was not computed."""
        means = self.means(model, variant, count)
        return "" if means is None else means.text()

    def lacks_seeds(self, model: str, variant: str = "") -> bool:
        """Whether runs were computed, but not with all the seeds of their model."""
        return 0 < len(self.of(model, variant)) < len(self.benchmark.seeds_of(model))

    def label(self, model: str, variant: str = "") -> str:
        """The model, or what is varied about it, and how many of its seeds there are where some are missing."""
        few = f" ({len(self.of(model, variant))} of {len(self.benchmark.seeds_of(model))} seeds)"
        return (variant or labelled(model)) + (few if self.lacks_seeds(model, variant) else "")

    def lines(self, measured: str) -> list[dict[str, Any]]:
        """The records of all measurements whose names begin with the words."""
        return [
            line
            for name, (records, _) in self.measured.items()
            if name.startswith(measured)
            for line in records
        ]

    def record_runs(
        self, model: str, variant: str, facts: dict[str, Value], counts: Sequence[int] = ()
    ) -> Records:
        """The lines of CSV of the runs of a model: one for each seed and number of local models."""
        lines: Records = []
        for run in self.of(model, variant):
            covered = run.found.get("coverage_by_count", {})
            for count in counts or (None,):
                evaluation = run.evaluation if count is None else run.by_count[count]
                line = {
                    **facts,
                    "seed": run.evaluation.seed,
                    **({} if count is None else {"local models": count}),
                }
                line |= {metric: float(evaluation.values[metric].mean()) for metric in METRICS}
                found = {
                    key: value for key, value in run.found.items() if key != "coverage_by_count"
                }
                found |= {"coverage": covered[str(count)]} if str(count) in covered else {}
                lines.append(line | as_values("found", found) | {"seconds": run.seconds})
        return lines


# What a table or figure of the paper shows; a record is a line of its CSV file.
Part = ReportTable | Chart | Finding | dict[str, Value]


class PaperItem:
    """A table or figure of the paper: the runs and measurements that it needs, and how it is made of their results.

    The docstring of each is its caption. What it shows of one benchmark comes without the benchmark's name, which
    `make` puts before it.
    """

    key: str
    title: str
    # The models whose rows of Table 2 it shows; None for all.
    names: tuple[str, ...] | None = ()

    @property
    def caption(self) -> str:
        return " ".join((self.__doc__ or "").split())

    def runs(self, benchmark: Benchmark) -> Runs:
        """The runs that it needs of a benchmark, which are not all its own: Figures 4 to 6 show rows of Table 2."""
        return benchmark.rows(benchmark.names if self.names is None else self.names)

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        return []

    def show(self, results: Results) -> Iterable[Part]:
        """Its tables, charts, records and findings of one benchmark; those of one kind in their order."""
        return ()

    def overview(self, results: Results, studied: Sequence[Results]) -> Iterable[ReportTable]:
        """Tables over several benchmarks that stand before those of one of them."""
        return ()

    def make(self, studied: Sequence[Results]) -> ReportItem:
        """The report item of the results on all benchmarks."""
        tables, charts, records, findings = (
            list[ReportTable](),
            list[Chart](),
            Records(),
            list[Finding](),
        )
        for results in studied:
            one, title = results.benchmark, results.benchmark.title
            tables += self.overview(results, studied)
            for part in self.show(results):
                if isinstance(part, ReportTable):
                    tables.append(
                        replace(part, heading=": ".join(filter(None, (title, part.heading))))
                    )
                elif isinstance(part, Chart):
                    charts.append(replace(part, title=title))
                elif isinstance(part, Finding):
                    findings.append(replace(part, text=f"{title}: {part.text}"))
                else:
                    records.append({"data": one.data.name, "protocol": one.protocol, **part})
        shown = (tuple(tables), tuple(charts), tuple(records), tuple(findings))
        return ReportItem(self.key, self.title, self.caption, *shown)


Tables = dict[str, Table]
_TUNED_WITH = 40
_FOUND = "settings.toml"
_SIZES = "reproduce"
_SECTIONS = (_SIZES, "compare", "tune", "data", "split", "planted", "recency", "fit", "describe")


def tables_for(name: str, protocol: str, settings: Path | None) -> Tables:
    """The settings of all models on one benchmark: of the file, or of NAME.toml and NAME-PROTOCOL.toml in the folder.

    Where both have a model, NAME-PROTOCOL.toml holds. Without any the built-in data has small networks,
    everything else the defaults.
    """
    files = _settings_files(name, protocol, settings)
    return {model: table for file in files for model, table in _read_tables(file, protocol).items()}


def sizes_for(name: str, protocol: str, settings: Path | None, given: Mapping[str, int]) -> Sizes:
    """The sizes of one benchmark: as given, else as the table `reproduce` of its settings files, else as usual."""
    sizes, known = SMALL if name == PLANTED else Sizes(), [one.name for one in fields(Sizes)]
    for file in _settings_files(name, protocol, settings):
        table = read_toml(file).get(_SIZES, {})
        if not isinstance(table, dict):
            example = f"[{_SIZES}] with seeds = 3 below it"
            raise ConfigError(f"{file}: {_SIZES}: expected a table of sizes, such as {example}")
        for key in (one for one in table if one not in known):
            near = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"{file}: unknown option {f'{_SIZES}.{key}'!r}{near}")
        try:
            sizes = replace(sizes, **table)
        except ConfigError as error:
            raise ConfigError(f"{file}: {_SIZES}.{error}") from None
    return replace(sizes, **given)


def _settings_files(name: str, protocol: str, settings: Path | None) -> list[Path]:
    """The files that hold settings of a benchmark; the later one wins."""
    if settings is None:
        return [Path(__file__).with_name("planted.toml")] if name == PLANTED else []
    if not settings.is_dir():
        return [settings]
    files = [settings / f"{name}.toml", settings / f"{name}-{protocol}.toml"]
    if not any(one.exists() for one in files):
        raise ConfigError(
            f"{settings}: expected {files[0].name} or {files[1].name} in it, the settings of the models"
        )
    return [one for one in files if one.exists()]


def _read_tables(path: Path, protocol: str) -> Tables:
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
            raise ConfigError(
                f"{path}: {name}: expected one value, found a list to choose from ({listed}); keep one"
            )
        if name.split(".")[-1] == "seed":
            raise ConfigError(
                f"{path}: {name}: every model gets the seeds that --seeds says; leave it out"
            )
    return tables


def tune_models(
    benchmark: Benchmark,
    names: Sequence[str],
    budget: Budget,
    folder: Path,
    *,
    processes: int,
    resume: bool,
    start_worker: Callable[..., Any] | None = None,
) -> Tables:
    """The settings of the benchmark, with those that tuning finds for the named models, each under the same budget.

    Trials, results and the file of settings are stored in the folder. Local models are tuned with few of them, because
    the choice of bandwidths carries over to many and the seconds do not. Dealt memberships have the settings of the
    mixtures that they are the control of.
    """
    names = [
        one for one in names if benchmark.model(one).get_params().get("communities") != "dealt"
    ]
    own, tables = folder / benchmark.name, {name: benchmark.tables.get(name, {}) for name in names}
    for name in (one for one in names if benchmark.model(one).role == "local"):
        tables[name] = {**tables[name], "anchors": min(_TUNED_WITH, benchmark.sizes.local_models)}
    built = build_models(names, {**benchmark.tables, **tables}, 0)
    kernels = {name: [with_kernels(one) for one in some] for name, some in built.items()}
    plan = plan_from_settings(kernels, "wide", tables)
    comparison = compare(
        plan.templates,
        benchmark.split,
        protocol=benchmark.protocol,
        refit=False,
        recency="own",
        budget=budget,
        narrowed=plan.constraints,
        processes=processes,
        start_worker=start_worker,
        keep_in=own,
        resume=resume,
    )
    write_whole(own / _FOUND, settings_file(comparison))
    if comparison.failed:
        # Left out, it would be measured with its defaults beside others that were tuned.
        reasons = "; ".join(f"{name}: {why}" for name, why in comparison.failed.items())
        raise LocaError(
            f"{benchmark.name}: tuning failed: {reasons}; {own} keeps the others, --resume tries again"
        )
    return tuned_before(benchmark, folder)


def tuned_before(benchmark: Benchmark, folder: Path) -> Tables:
    """The settings of the benchmark, with those that an earlier tuning found, where the folder has any."""
    found = folder / benchmark.name / _FOUND
    return {
        **benchmark.tables,
        **(_read_tables(found, benchmark.protocol) if found.exists() else {}),
    }
