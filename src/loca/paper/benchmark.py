"""A benchmark: one data set under one protocol, its models, runs, measurements and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from loca.config.model_factory import build_models, describe_model
from loca.config.options import PLANTED
from loca.config.settings import Choice, Given, Table, flat_settings, read_toml
from loca.data.datasets import DATA_SETS
from loca.data.download import data_folder, find_below
from loca.data.id_map import Id
from loca.data.interactions import Interactions
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, LocaError, check_counts, did_you_mean
from loca.evaluation.evaluate import Evaluation
from loca.experiments.comparison import compare, with_kernels
from loca.experiments.report import settings_file
from loca.experiments.runs import ComparedModel, Run, is_control
from loca.local.combiner import LocalOnly
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.many_models import ManyModels
from loca.models.recommender import Recommender, clone
from loca.paper.charts import Chart
from loca.paper.counted_runs import CountedModel, CountedRun
from loca.paper.permuted import with_parameters
from loca.paper.report import Finding, Records, ReportItem, ReportTable, Value
from loca.paper.seed_means import METRICS, SeedMeans, as_values, labelled
from loca.persistence.atomic_write import write_whole
from loca.persistence.manifest import fingerprint
from loca.registry import MODELS, names_of
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
    """Interactions to be studied, and the same as the paper has them, where it has them.

    Users have at least 10 distinct items. `printed` is the name under which the paper's tables hold
    the data.
    """

    name: str
    label: str
    interactions: Interactions
    validation: int = 2
    printed: str | None = None
    as_printed: Interactions | None = None
    genres: Genres = field(default_factory=dict)

    def split(self, protocol: ProtocolName) -> Split:
        """Return a split whose test items are the last 5 of each user.

        `clean` holds out some before them for validation, `paper` nothing, and counts repeats.
        """
        if protocol == "paper":
            interactions = self.interactions if self.as_printed is None else self.as_printed
            return counted_as_paper(leave_last_out(interactions, test=_TEST))
        return leave_last_out(self.interactions, test=_TEST, validation=self.validation)


def open_data(name: str, *, seed: int = 0) -> StudiedData:
    """Read the data of a name or path; refuse one that is not there with the places looked in."""
    if name == PLANTED:
        return _planted_data(seed)
    if name in DATA_SETS:
        return _known_data(name)
    if not Path(name).exists():
        known = [PLANTED, *(known for known in DATA_SETS if known not in _INSTEAD.values())]
        near = did_you_mean(name, known) or f"; known by name are {', '.join(known)}"
        raise ConfigError(
            f"data {name!r}: there is no such file, and no data set of that name{near}"
        )
    return _file_data(name)


def _planted_data(seed: int) -> StudiedData:
    from loca.data.item_metadata import genres_of_planted

    planted = planted_communities(users=1000, items=150, seed=seed)
    genres = genres_of_planted(planted)
    return StudiedData(PLANTED, "planted", planted.interactions, genres=genres)


def _file_data(name: str) -> StudiedData:
    from loca.data.readers import read_interactions

    # As text that can be written, and distinguished from what is known by name.
    label = Path(name).name.encode("utf-8", "replace").decode()
    interactions = read_interactions(name, min_user_interactions=_LEAST_HISTORY)
    is_known = label in (PLANTED, *DATA_SETS)
    return StudiedData(f"{label} (file)" if is_known else label, label, interactions)


def _known_data(name: str) -> StudiedData:
    from loca.data.item_metadata import read_genres, read_titles
    from loca.data.readers import layout_of, read_interactions, read_preset

    folder = data_folder()
    data_set = DATA_SETS[name]
    path = find_below(folder, data_set.files)
    if path is None and name in _INSTEAD:
        path = find_below(folder, DATA_SETS[_INSTEAD[name]].files)
        if path is not None:
            data_set = DATA_SETS[_INSTEAD[name]]
    if path is None:
        # Not all can be fetched: some are only near what is published.
        fetching = f", or get it with  loca data fetch {name}" if data_set.addresses else ""
        raise ConfigError(
            f"data {name!r}: expected {data_set.files[0]} below {folder}; set LOCA_DATA to the "
            f"folder that holds it{fetching}"
        )
    interactions = read_interactions(
        path, layout=layout_of(data_set, path), min_user_interactions=_LEAST_HISTORY
    )
    preset = None if data_set.printed is None else data_set.label
    as_printed = None if preset is None else read_preset(preset, path)
    genres: Genres = {}
    titles = find_below(folder, data_set.titles)
    if titles is not None:
        genres = dict(read_genres(titles))
        title_of = read_titles(titles)
        interactions = interactions.with_titles(title_of)
        as_printed = None if as_printed is None else as_printed.with_titles(title_of)
    return StudiedData(
        name=name,
        label=data_set.label,
        interactions=interactions,
        validation=data_set.validation,
        printed=preset,
        as_printed=as_printed,
        genres=genres,
    )


_MOST = 100_000

BASELINES = names_of("baseline")
# The last two are of many local models themselves.
SINGLES = BASELINES[:-2]
LOCALS = names_of("local")
CONTROLS = names_of("control")
# The paper's models with its authors' settings, for the data and the protocol that it prints.
AUTHORS = names_of("authors")
# Communities by mixtures, each followed by its control: the same memberships dealt to other users.
MIXTURES = names_of("mixture")
# What the paper does not have: those, models that use the order of histories, and blends.
BEYOND = (*MIXTURES, *names_of("beyond"))
ALL_NAMES = (*BASELINES, *LOCALS, *CONTROLS, *AUTHORS, *BEYOND)
# Their figures by number of local models are shown too.
_COUNTED = ("loca-vae", "llorma-vae", "ensemble-vae", "loca-dae", "ensemble-dae")
_OF_DAE = ("loca-dae", "ensemble-dae")


@dataclass(frozen=True)
class Sizes:
    """The numbers of models and seeds.

    Parameters
    ----------
    local_models
        Local models of Tables 2 and 3 and Figures 4 and 5, and the most that Table 5 trains at
        once.
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

    def counts(self, size: int) -> tuple[int, ...]:
        """Return the numbers of local models that a figure shows: the paper's, and all."""
        steps = (1, 10, 50, 100, 200, 300) if size > 50 else (1, 2, 5, 10, 20)
        return (*(count for count in steps if count < size), size)

    def thirds(self, size: int) -> tuple[int, ...]:
        """Return the numbers that Table 3 and Figures 7 and 8 show: 100, 200 and 300 of 300."""
        return tuple(sorted({max(1, size * part // 3) for part in (1, 2, 3)}))

    def timed(self) -> tuple[int, ...]:
        """Return the numbers of local models of Table 5."""
        counts = (1, 2, 5, 10, 15, 20, 50, 100, 300)
        return tuple(count for count in counts if count <= self.local_models)


# Small enough for a few minutes on two cores.
SMALL = Sizes(
    local_models=12, sweep_models=6, pilot_models=10, loop_models=5, seeds=3, auto_seconds=10.0
)


class RunKey(NamedTuple):
    """Which run of a benchmark: the model, what is varied about it, and the seed.

    Nothing is varied in Table 2.
    """

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

        Only `paper` has the interactions that the figures are printed for: `clean` has each pair
        once, and other users.
        """
        return self.data.printed if self.protocol == "paper" else None

    @property
    def names(self) -> tuple[str, ...]:
        """The models that are measured.

        Those beyond the paper are measured under `clean`, the authors' settings beside print.
        """
        of_protocol: tuple[str, ...] = ()
        if self.protocol == "clean":
            of_protocol = BEYOND
        elif self.data.printed is not None:
            of_protocol = AUTHORS
        return (*BASELINES, *LOCALS, *CONTROLS, *of_protocol)

    @cached_property
    def digest(self) -> str:
        return fingerprint(self.split)

    @cached_property
    def _built(self) -> dict[int, dict[str, list[Recommender]]]:
        """All models by seed, made when the first of a seed is needed; copies are handed out."""
        return {}

    def settings_of(self, name: str) -> Table:
        """Return the settings of a model.

        Mixtures have those of the kernels' row beside their own, but for its communities. The same
        mixtures with other users have theirs.
        """
        own = dict(self.tables.get(name, {}))
        if name not in MIXTURES:
            return own
        base = name.partition("-")[2]
        table = dict(self.tables.get(f"loca-{base}", {}))
        table.pop("communities", None)
        mixture = f"mixture-{base}"
        if name != mixture:
            table |= self.tables.get(mixture, {})
            if "communities" in table:
                table["communities"] = {"finder": table["communities"]}
        return table | own

    def _build(self, seed: int) -> dict[str, list[Recommender]]:
        tables = {**self.tables, **{name: self.settings_of(name) for name in MIXTURES}}
        return build_models(ALL_NAMES, tables, seed)

    def model(self, name: str, seed: int = 0) -> Any:
        """Return a named model by its settings, unfitted.

        Local models and ensembles have as many as the sizes say. Where the kind of communities
        would be chosen on validation, it is the paper's.
        """
        if seed not in self._built:
            self._built[seed] = self._build(seed)
        model = with_kernels(clone(self._built[seed][name][0]))
        if isinstance(model, ManyModels):
            is_of_dae = name in _OF_DAE
            return of_size(model, self.sizes.sweep_models if is_of_dae else self.sizes.local_models)
        if model.role == "auto" and "seconds" not in self.tables.get(name, {}):
            return clone(model, seconds=self.sizes.auto_seconds)
        return model

    def check(self) -> None:
        """Refuse settings that no model can have, before anything is computed or dropped."""
        self._build(0)

    def check_size(self, names: Sequence[str]) -> None:
        """Refuse more local models than there are users for them, if the named models have any."""
        if not {*LOCALS, *CONTROLS, *MIXTURES} & {*names}:
            return
        n_users = self.split.train.n_users
        sizes = {
            "--local-models": self.sizes.local_models,
            "--sweep-models": self.sizes.sweep_models,
        }
        for option, size in sizes.items():
            if size > n_users:
                raise ConfigError(
                    f"{self.name}: {size} local models need as many users, found {n_users}; "
                    f"take fewer, {option}"
                )

    def seeds_of(self, name: str) -> tuple[int, ...]:
        """Return the seeds that the model is fitted with: one where nothing in it is drawn."""
        described = describe_model(self.model(name))
        is_drawn = any(parameter.split(".")[-1] == "seed" for parameter in described)
        return tuple(range(self.sizes.seeds)) if is_drawn else (0,)

    def run(
        self,
        key: RunKey,
        model: Recommender,
        *,
        counts: Sequence[int] = (),
        refit: bool = True,
        shares_parts: bool = False,
    ) -> Run:
        """Return the run of a model; with `counts` it is also measured with its first models."""
        protocol = EvaluationProtocol(
            protocol=self.protocol, refit=refit, recency="own", seed=key.seed
        )
        run = Run(
            name=str(key),
            candidates=(model,),
            protocol=protocol,
            data=self.digest,
            shares_parts=shares_parts,
        )
        return CountedRun(**vars(run), counts=tuple(counts)) if counts else run

    def rows(self, names: Iterable[str]) -> Runs:
        """Return the runs of rows of Table 2: each model with each of its seeds."""
        runs: Runs = {}
        for name in names:
            for seed in self.seeds_of(name):
                key = RunKey(name, "", seed)
                model = self.model(name, seed)
                counts = self.sizes.counts(model.size) if name in _COUNTED else ()
                runs[key] = self.run(key, model, counts=counts)
        return runs

    def varied(
        self, variant: str, counts: Sequence[int], name: str = "loca-vae", /, **changes: Any
    ) -> Runs:
        """Return the runs of a local model whose finder has some parameters changed, for each seed.

        It has as many models as the largest of `counts`. The global model has no share in the
        answers of covered users, as in the paper, so that what is varied shows. A sweep is not
        refitted on validation: it is there to be compared with itself. The runs of a seed have one
        global model, which is fitted once.
        """
        is_mixed = name in MIXTURES
        if not is_mixed:
            changes = {"anchors": "coverage", **changes}
        runs: Runs = {}
        for seed in range(self.sizes.seeds):
            key = RunKey(name, variant, seed)
            model = of_size(self.model(name, seed), max(counts))
            finder = with_parameters(model.communities, **changes)
            runs[key] = self.run(
                key,
                clone(model, communities=finder, combiner=LocalOnly()),
                # The first communities of a mixture are no mixture of fewer.
                counts=() if is_mixed else counts,
                refit=False,
                shares_parts=True,
            )
        return runs

    def measurements(
        self, name: str, measure: Callable[[Benchmark, int], Records], **others: Any
    ) -> list[Measurement]:
        """Return one measurement with MultVAE for each seed."""
        measurements = []
        for seed in range(self.sizes.seeds):
            inputs = self.inputs_of(self.model("mult-vae", seed), protocol=self.protocol, **others)
            measurements.append(
                Measurement(f"{name} seed {seed}", inputs, partial(measure, self, seed))
            )
        return measurements

    def inputs_of(self, model: Recommender, **others: Any) -> dict[str, Any]:
        """Return all that a measurement depends on.

        That is the split, a model to the last bit, and what else is named.
        """
        described = describe_model(model)
        return {"data": self.digest, **others, **described, "to the last bit": fingerprint(model)}


def of_size(model: ManyModels, size: int) -> Any:
    """Return a local model or an ensemble with so many models; mixtures are no more than that."""
    if isinstance(model, Loca):
        return clone(model, communities=model.communities.with_n(size))
    assert isinstance(model, Ensemble)
    return clone(model, models=size)


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a benchmark.

    These are the finished runs, and by name the records of measurements and their seconds.
    """

    benchmark: Benchmark
    runs: Mapping[RunKey, ComparedModel]
    measured: Mapping[str, Measured] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long all of it took, wherever it was computed."""
        of_runs = sum(run.seconds for run in self.runs.values())
        return of_runs + sum(seconds for _, seconds in self.measured.values())

    @property
    def names(self) -> set[str]:
        """The names of all finished runs and measurements."""
        return {*map(str, self.runs), *self.measured}

    def of(self, model: str, variant: str = "") -> list[ComparedModel]:
        """Return the finished runs of a model, seed after seed; none where it was not computed."""
        keys = (RunKey(model, variant, seed) for seed in range(self.benchmark.sizes.seeds))
        return [self.runs[key] for key in keys if key in self.runs]

    def counted(self, model: str, variant: str = "") -> list[CountedModel]:
        """Return the finished runs of a model that were also measured with its first models."""
        return [run for run in self.of(model, variant) if isinstance(run, CountedModel)]

    def means(self, model: str, variant: str = "", count: int | None = None) -> SeedMeans | None:
        """Return the means over seeds of a model, or of its first `count` models.

        None where it was not computed.
        """
        if count is None:
            evaluations = [run.evaluation for run in self.of(model, variant)]
        else:
            evaluations = [run.by_count[count] for run in self.counted(model, variant)]
        return SeedMeans(tuple(evaluations)) if evaluations else None

    def text(self, model: str, variant: str = "", count: int | None = None) -> str:
        """Return the NDCG@100 of a model with its spread over seeds; nothing without runs."""
        means = self.means(model, variant, count)
        return "" if means is None else means.text()

    def lacks_seeds(self, model: str, variant: str = "") -> bool:
        """Return whether runs were computed, but not with all the seeds of their model."""
        return 0 < len(self.of(model, variant)) < len(self.benchmark.seeds_of(model))

    def label(self, model: str, variant: str = "") -> str:
        """Return the model, or what is varied about it, and how many seeds there are if few."""
        label = variant or labelled(model)
        if not self.lacks_seeds(model, variant):
            return label
        n_seeds = len(self.benchmark.seeds_of(model))
        return f"{label} ({len(self.of(model, variant))} of {n_seeds} seeds)"

    def lines(self, measured: str) -> list[dict[str, Any]]:
        """Return the records of all measurements whose names begin with the words."""
        return [
            line
            for name, (records, _) in self.measured.items()
            if name.startswith(measured)
            for line in records
        ]

    def record_runs(
        self, model: str, variant: str, facts: dict[str, Value], counts: Sequence[int] = ()
    ) -> Records:
        """Return the lines of CSV of a model: one for each seed and number of local models."""
        if not counts:
            return [_line(run, run.evaluation, facts, run.found) for run in self.of(model, variant)]
        lines: Records = []
        for run in self.counted(model, variant):
            for count in counts:
                known = dict(run.found)
                if count in run.coverage_by_count:
                    known["coverage"] = run.coverage_by_count[count]
                of_count = {**facts, "seed": run.evaluation.seed, "local models": count}
                lines.append(_line(run, run.by_count[count], of_count, known))
        return lines


def _line(
    run: ComparedModel,
    evaluation: Evaluation,
    facts: Mapping[str, Value],
    found: Mapping[str, Any],
) -> dict[str, Value]:
    """Return a line of CSV."""
    return {
        **facts,
        "seed": run.evaluation.seed,
        **{metric: float(evaluation.values[metric].mean()) for metric in METRICS},
        **as_values("found", found),
        "seconds": run.seconds,
    }


# What a table or figure of the paper shows; a record is a line of its CSV file.
Part = ReportTable | Chart | Finding | dict[str, Value]


class PaperItem:
    """A table or figure of the paper: the runs and measurements that it needs, and what it shows.

    The docstring of each is its caption. What it shows of one benchmark comes without the
    benchmark's name, which `make` puts before it.
    """

    key: str
    title: str
    # The models whose rows of Table 2 it shows; None for all.
    names: tuple[str, ...] | None = ()

    @property
    def caption(self) -> str:
        return " ".join((self.__doc__ or "").split())

    def runs(self, benchmark: Benchmark) -> Runs:
        """Return the runs that it needs of a benchmark.

        They are not all its own: Figures 4 to 6 show rows of Table 2.
        """
        return benchmark.rows(benchmark.names if self.names is None else self.names)

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """Return the measurements that it needs of a benchmark."""
        return []

    def show(self, results: Results) -> Iterable[Part]:
        """Return its tables, charts, records and findings of one benchmark.

        Those of one kind stand in their order.
        """
        return ()

    def overview(self, results: Results, studied: Sequence[Results]) -> Iterable[ReportTable]:
        """Return tables over several benchmarks that stand before those of one of them."""
        return ()

    def make(self, studied: Sequence[Results]) -> ReportItem:
        """Return the report item of the results on all benchmarks."""
        tables: list[ReportTable] = []
        charts: list[Chart] = []
        records: Records = []
        findings: list[Finding] = []
        for results in studied:
            benchmark = results.benchmark
            title = benchmark.title
            origin: dict[str, Value] = {"data": benchmark.data.name, "protocol": benchmark.protocol}
            tables += self.overview(results, studied)
            for part in self.show(results):
                if isinstance(part, ReportTable):
                    heading = f"{title}: {part.heading}" if part.heading else title
                    tables.append(replace(part, heading=heading))
                elif isinstance(part, Chart):
                    charts.append(replace(part, title=title))
                elif isinstance(part, Finding):
                    findings.append(replace(part, text=f"{title}: {part.text}"))
                else:
                    records.append({**origin, **part})
        return ReportItem(
            key=self.key,
            title=self.title,
            caption=self.caption,
            tables=tuple(tables),
            charts=tuple(charts),
            records=tuple(records),
            findings=tuple(findings),
        )


Tables = dict[str, Table]
_TUNED_WITH = 40
_SETTINGS_FILE = "settings.toml"
_SIZES = "reproduce"
_SECTIONS = (_SIZES, "compare", "tune", "data", "split", "planted", "recency", "fit", "describe")


def tables_for(name: str, protocol: str, settings: Path | None) -> Tables:
    """Return the settings of all models on one benchmark.

    They are those of the file, or of NAME.toml and NAME-PROTOCOL.toml in the folder; where both
    have a model, the latter holds. Without any the built-in data has small networks, everything
    else the defaults.
    """
    tables: Tables = {}
    for file in _settings_files(name, protocol, settings):
        tables |= _read_tables(file, protocol)
    return tables


def sizes_for(name: str, protocol: str, settings: Path | None, chosen: Mapping[str, int]) -> Sizes:
    """Return the sizes of one benchmark.

    They are those chosen, else of the table `reproduce` of its settings files, else the usual ones.
    """
    sizes = SMALL if name == PLANTED else Sizes()
    known = [size.name for size in fields(Sizes)]
    for file in _settings_files(name, protocol, settings):
        table = read_toml(file).get(_SIZES, {})
        if not isinstance(table, dict):
            example = f"[{_SIZES}] with seeds = 3 below it"
            raise ConfigError(f"{file}: {_SIZES}: expected a table of sizes, such as {example}")
        for key in table:
            if key not in known:
                advice = did_you_mean(key, known) or f"; there are {', '.join(known)}"
                raise ConfigError(f"{file}: unknown option {f'{_SIZES}.{key}'!r}{advice}")
        try:
            sizes = replace(sizes, **table)
        except ConfigError as error:
            raise ConfigError(f"{file}: {_SIZES}.{error}") from None
    return replace(sizes, **chosen)


def _settings_files(name: str, protocol: str, settings: Path | None) -> list[Path]:
    """Return the files that hold settings of a benchmark; the later one wins."""
    if settings is None:
        return [Path(__file__).with_name("planted.toml")] if name == PLANTED else []
    if not settings.is_dir():
        return [settings]
    files = [settings / f"{name}.toml", settings / f"{name}-{protocol}.toml"]
    there = [file for file in files if file.exists()]
    if not there:
        names = " or ".join(file.name for file in files)
        raise ConfigError(f"{settings}: expected {names} in it, the settings of the models")
    return there


def _read_tables(path: Path, protocol: str) -> Tables:
    """Return the tables of the models in a file; refuse what would make a result that is none."""
    compared = read_toml(path).get("compare", {})
    if protocol == "clean" and isinstance(compared, dict) and compared.get("protocol") == "paper":
        raise ConfigError(
            f"{path}: its settings were chosen on the test items (compare.protocol is paper), which "
            "a clean result must not know; give settings that were found under clean, or ask for "
            "--protocol paper"
        )
    elsewhere = tuple(name for name in (*MODELS, *_SECTIONS) if name not in ALL_NAMES)
    all_tables = Given(path).tables((), ALL_NAMES, elsewhere)
    tables = {name: all_tables[name] for name in ALL_NAMES if all_tables[name]}
    for name, value in flat_settings(tables).items():
        if isinstance(value, Choice):
            listed = ", ".join(map(str, value.values))
            raise ConfigError(
                f"{path}: {name}: expected one value, found a list to choose from ({listed}); "
                "keep one"
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
    """Return the settings of the benchmark, with those that tuning finds for the named models.

    Each has the same budget. Trials, results and the file of settings are stored in the folder.
    Local models are tuned with few of them, because the choice of bandwidths carries over to many
    and the seconds do not. Permuted communities have the settings of those that they are the
    control of.
    """
    names = [name for name in names if not is_control(benchmark.model(name))]
    results = folder / benchmark.name
    n_communities = min(_TUNED_WITH, benchmark.sizes.local_models)
    tables: Tables = {}
    for name in names:
        tables[name] = dict(benchmark.tables.get(name, {}))
        if benchmark.model(name).role == "local":
            communities = tables[name].get("communities", {})
            if isinstance(communities, str):
                communities = {"kind": communities}
            tables[name]["communities"] = {**communities, "n": n_communities}
    built = build_models(names, {**benchmark.tables, **tables}, 0)
    candidates = {name: [with_kernels(model) for model in models] for name, models in built.items()}
    plan = plan_from_settings(candidates, "wide", tables)
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
        keep_in=results,
        resume=resume,
    )
    write_whole(results / _SETTINGS_FILE, settings_file(comparison))
    if comparison.failed:
        # Left out, it would be measured with its defaults beside others that were tuned.
        reasons = "; ".join(f"{name}: {reason}" for name, reason in comparison.failed.items())
        raise LocaError(
            f"{benchmark.name}: tuning failed: {reasons}; {results} keeps the others, "
            "--resume tries again"
        )
    return tuned_before(benchmark, folder)


def tuned_before(benchmark: Benchmark, folder: Path) -> Tables:
    """Return the settings of the benchmark, with those that an earlier tuning found, if any."""
    tables = dict(benchmark.tables)
    path = folder / benchmark.name / _SETTINGS_FILE
    if path.exists():
        tables |= _read_tables(path, benchmark.protocol)
    return tables
