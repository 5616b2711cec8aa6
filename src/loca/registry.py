"""All models, a record each; the kinds of their components; and `load`."""

from __future__ import annotations

from collections import ChainMap, UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast, get_args

import loca
from loca.errors import ConfigError, ModelFileError, check_choice, did_you_mean
from loca.models.recommender import Recommender
from loca.persistence import load_model
from loca.search_space import Among, Domain, Quantiles, Range, Space, log_range

SpaceName = Literal["wide", "paper"]
Control = Literal["ensemble", "dealt"]
Group = Literal["baseline", "local", "control", "authors", "mixture", "beyond"]


@dataclass(frozen=True)
class ModelRecord:
    """One model of the catalogue.

    Parameters
    ----------
    name
        What it is called on the command line.
    maker
        Where its class is, as `models.ease.EASE`, or a function that makes it with other settings
        than its defaults.
    wide, paper
        The spaces it is tuned in: around every default, and the values that the paper tried.
        Without a wide one its settings stay (the authors' own), or it searches by itself (`auto`).
    base
        The name of the model that a local model or an ensemble is made of.
    control, control_of
        Of a control the word for all of its kind, and the local models that it belongs to: it has
        the base and the size of the first of them that stands beside it.
    group
        The part of the reproduced Table 2 that shows it; None where it does not.
    label
        What tables call it, by default as its class; where the paper has the model, the paper's
        word.
    """

    name: str
    maker: str | Callable[[], Recommender]
    wide: Space | None = None
    paper: Space | None = None
    base: str | None = None
    control: Control | None = None
    control_of: tuple[str, ...] = ()
    group: Group | None = None
    label: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.maker, str) and not self.label:
            object.__setattr__(self, "label", self.maker.rpartition(".")[2])

    def make(self) -> Recommender:
        """Return the unfitted model with its defaults; its module is loaded only now."""
        return cast(
            Recommender, (_class(self.maker) if isinstance(self.maker, str) else self.maker)()
        )


def _class(path: str) -> type:
    """Return the class at a dotted path inside the package."""
    module, _, name = path.rpartition(".")
    return cast(type, getattr(import_module(f"loca.{module}"), name))


_RIDGE: Mapping[str, Domain] = {"l2": log_range(1.0, 1e4), "denoising": Range(0.0, 0.9)}
_LATENT, _DROPOUT = log_range(50, 600), Range(0.0, 0.8)
_NETWORK: Mapping[str, Domain] = {
    "latent": _LATENT,
    "hidden": Among((None, 300, 600)),
    "dropout": _DROPOUT,
    "learning_rate": log_range(1e-4, 1e-2),
    "weight_decay": Among((0.0, 1e-6, 1e-5, 1e-4)),
    "batch_size": Among((128, 256, 512, 1024)),
}
_VARIATIONAL: Mapping[str, Domain] = {
    **_NETWORK,
    "noise": Among((1.0, 0.1, 0.01)),
    "kl_weight": Range(0.0, 1.0),
    # The default fits millions of users: where there are few, 20,000 steps never end.
    "anneal_steps": Among((0, 200, 2_000, 20_000)),
}
_CDAE: Mapping[str, Domain] = {
    "latent": _LATENT,
    "dropout": _DROPOUT,
    "loss": Among(("logistic", "square")),
    "learning_rate": log_range(1e-4, 1e-1),
    "weight_decay": Among((0.0, 1e-6, 1e-5, 3e-5, 1e-4)),
    "node_l2": log_range(1e-3, 10.0),
}
_REC_VAE: Mapping[str, Domain] = {
    "latent": log_range(100, 600),
    "hidden": log_range(100, 800),
    "dropout": Range(0.3, 0.9),
    "gamma": log_range(1e-3, 0.1),
    "learning_rate": log_range(1e-4, 2e-3),
    "encoder_epochs": Range(1, 3),
    # Where histories are few the decoder needs more passes than its authors give it.
    "decoder_epochs": log_range(1, 10),
}
_NEXT_COUNT = log_range(1, 50)
_NEXT = {"next_count": _NEXT_COUNT, "prefix_decay": Range(0.5, 0.98), "set_share": Range(0.0, 0.8)}
_ORDER = {
    "next_count": _NEXT_COUNT,
    "prefix_decay": Range(0.3, 0.98),
    "ordinary": log_range(0.01, 10.0),
}
_NEXT_RIDGE = {**_RIDGE, **_ORDER}
_CONFIDENT: Mapping[str, Domain] = {
    "confidence": log_range(1.0, 500.0),
    "user_l2": log_range(1.0, 1e3),
}
_FACTORS = {"factors": log_range(32, 1024), **_CONFIDENT, "frequency_scaling": Range(0.0, 1.0)}
_KERNELS = {
    "anchors": log_range(10, 100),
    "bandwidth": Range(0.6, 5.0),
    "factors": log_range(8, 128),
    **_CONFIDENT,
}
# Only the product of both regularisations shows in answers.
_ONE_RIDGE = {"item_l2": "user_l2"}
_RANKS = {
    "clusters": log_range(2, 100),
    "global_rank": log_range(10, 600),
    "local_rank": log_range(1, 50),
}
# Of the communities that a model has, those of its kind are tried: a finder by likelihood has no
# bandwidths. Up to above the largest distance: wide training neighbourhoods were the better ones on
# small data.
_TRAIN_BANDWIDTH = Quantiles(Range(0.3, 1.0), Range(0.8, 1.6))
_N_COMMUNITIES = log_range(10, 160)
_COMMUNITIES: Mapping[str, Domain] = {
    "communities.n": _N_COMMUNITIES,
    "communities.anchors": Among(("coverage", "random", "kmeans", "farthest")),
    "communities.train_bandwidth": _TRAIN_BANDWIDTH,
    # A factor here would only say otherwise what the level says.
    "communities.answer_bandwidth": Quantiles(Range(0.02, 0.95)),
    "communities.kernel": Among(("epanechnikov", "paper", "uniform", "triangular")),
    "communities.mixtures": Among((1, 2, 4)),
    "communities.divisions": Among((1, 2, 4)),
    # None is the finder's own, which depends on the base.
    "communities.membership_weight": Among((None, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)),
}
_ONE_KERNEL = {"communities.answer_bandwidth": "communities.train_bandwidth"}

# The values that the paper tried, as its section "Implementation Details" gives them.
_RATES, _DROPOUTS, _RIDGES = (
    Among((0.1, 0.01, 0.001)),
    Among((0.0, 0.2, 0.5)),
    Among((1.0, 10.0, 100.0)),
)
_LEARNING: Mapping[str, Domain] = {"learning_rate": _RATES, "dropout": _DROPOUTS}
_DECAYED = {
    "learning_rate": _RATES,
    "weight_decay": Among((0.001, 0.01, 0.1)),
    "dropout": _DROPOUTS,
}
_SCHEDULE = {"latent": 200, "batch_size": 512, "patience": 50}
_PAPER_FACTORS = {"user_l2": _RIDGES, "item_l2": _RIDGES, "confidence": Among((2.0, 5.0, 10.0))}
_BANDWIDTHS = Among((0.8, 1.0, 2.0, 4.0, 5.0))
_LOCA = Space(
    {
        "communities.train_bandwidth": Range(0.8, 2.0),
        "communities.answer_bandwidth": Range(0.2, 0.8),
    },
    kinds={"communities": "kernels"},
)
# MultVAE's layer is as wide as its authors', Liang et al., had it; the paper says no width.
_PAPER_VAE = Space(
    {**_LEARNING, "hidden": Among((None, 600))}, fixed={**_SCHEDULE, "weight_decay": 0.0}
)
_PAPER_LLORMA = Space({**_PAPER_FACTORS, "bandwidth": _BANDWIDTHS}, fixed={"anchors": 100})
_CLUSTERS = Space({"clusters": Among((2, 3, 5, 10, 20, 50, 100))})
# One kernel to train and to answer with.
_ONE_WIDE = Space(
    {"communities.n": _N_COMMUNITIES, "communities.train_bandwidth": _TRAIN_BANDWIDTH},
    same=_ONE_KERNEL,
)
_ONE_PAPER = Space(
    {"communities.train_bandwidth": _BANDWIDTHS},
    fixed={"communities.n": 100},
    same=_ONE_KERNEL,
)
_PAPER_REC_VAE = Space({**_LEARNING, "beta": Among((0.1, 0.01, 0.001))}, fixed=_SCHEDULE)


def _next_vae() -> loca.MultVAE:
    """Return a network of next items that learns some sets too, as `Auto` begins with."""
    return loca.MultVAE(
        dropout=0.2, noise=0.1, kl_weight=0.0, learning_rate=2e-3, target="next", set_share=0.3
    )


def _over(name: str, *, in_paper: bool = False, mixed: bool = False) -> list[ModelRecord]:
    """Return the records of the local model over a base, and of its controls.

    `in_paper` says that the paper has the local model and the ensemble. With `mixed` there are two
    more: communities by likelihood alone, and the same with the memberships of other users.
    """
    base, suffix = _SINGLES[name].make, name.removeprefix("mult-")
    label = suffix.upper()
    records = [
        ModelRecord(
            f"loca-{suffix}",
            lambda: loca.Loca(base=base()),
            wide=Space(_COMMUNITIES),
            paper=_LOCA if in_paper else None,
            base=name,
            group="local" if in_paper else None,
            label=f"LOCA_{label}",
        ),
        ModelRecord(
            f"ensemble-{suffix}",
            lambda: loca.Ensemble(base=base()),
            wide=Space({"models": log_range(5, 160)}),
            paper=Space() if in_paper else None,
            base=name,
            control="ensemble",
            control_of=(f"loca-{suffix}", f"mixture-{suffix}"),
            group="control" if in_paper else None,
            label=f"Ensemble_{label}",
        ),
    ]
    if mixed:
        records += [
            ModelRecord(
                f"mixture-{suffix}",
                lambda: loca.Loca(base=base(), communities=loca.Mixtures()),
                wide=Space(_COMMUNITIES),
                base=name,
                group="mixture" if in_paper else None,
                label=f"LOCA_{label}, mixture",
            ),
            # It has the settings of the local model beside it, like an ensemble.
            ModelRecord(
                f"dealt-{suffix}",
                lambda: loca.Loca(base=base(), communities=_permuted_mixtures()),
                wide=Space(),
                base=name,
                control="dealt",
                control_of=(f"mixture-{suffix}", f"loca-{suffix}"),
                group="mixture" if in_paper else None,
                label=f"LOCA_{label}, dealt",
            ),
        ]
    return records


def _permuted_mixtures() -> loca.CommunityFinder:
    """Return mixtures whose memberships are given to other users."""
    return cast(loca.CommunityFinder, _class("paper.permuted.Permuted")(finder=loca.Mixtures()))


def _preset(name: str) -> Callable[[], Recommender]:
    """Return what makes a preset of the paper; its module is loaded only then."""
    return lambda: cast(Recommender, getattr(import_module("loca.paper.presets"), name)())


_BASICS = (
    ("popularity", "popularity.Popularity", Space(), Space()),
    (
        "item-knn",
        "item_knn.ItemKNN",
        Space({"neighbours": log_range(5, 1000), "shrinkage": Range(0.0, 1e3)}),
        None,
    ),
    (
        "wmf",
        "wmf.WMF",
        Space({**_FACTORS, "iterations": Range(5, 20)}, same=_ONE_RIDGE),
        Space(_PAPER_FACTORS),
    ),
    ("slim", "slim.SLIM", Space({"l1": log_range(0.1, 30.0), "l2": log_range(1.0, 1e3)}), None),
    ("cdae", "cdae.CDAE", Space(_CDAE), Space(_DECAYED, fixed=_SCHEDULE)),
    ("mult-dae", "mult_vae.MultDAE", Space(_NETWORK), Space(_DECAYED, fixed=_SCHEDULE)),
    ("mult-vae", "mult_vae.MultVAE", Space(_VARIATIONAL), _PAPER_VAE),
    ("ease", "ease.EASE", Space(_RIDGE), Space({"l2": Among((1.0, 10.0, 100.0, 1000.0))})),
    ("rec-vae", "rec_vae.RecVAE", Space(_REC_VAE), _PAPER_REC_VAE),
    (
        "llorma",
        "llorma.LLORMA",
        Space({**_KERNELS, "iterations": Range(3, 10)}, same=_ONE_RIDGE),
        _PAPER_LLORMA,
    ),
)
_SINGLES: Mapping[str, ModelRecord] = {
    **{
        name: ModelRecord(name, f"models.{kind}", wide, paper, group="baseline")
        for name, kind, wide, paper in _BASICS
    },
    "sglsvd": ModelRecord(
        "sglsvd",
        "models.sglsvd.SGLSVD",
        wide=Space(_RANKS),
        paper=_CLUSTERS,
        group="baseline",
        label="sGLSVD",
    ),
    "next-ease": ModelRecord(
        "next-ease", "models.next_ease.NextEASE", Space(_NEXT_RIDGE), group="beyond"
    ),
    "next-vae": ModelRecord(
        "next-vae", _next_vae, Space({**_VARIATIONAL, **_NEXT}), label="MultVAE"
    ),
}
_RECORDS = (
    *_SINGLES.values(),
    *_over("mult-vae", in_paper=True, mixed=True),
    *_over("ease", in_paper=True, mixed=True),
    *_over("mult-dae", in_paper=True),
    *_over("wmf"),
    *_over("slim"),
    *_over("rec-vae"),
    *_over("next-ease"),
    *_over("next-vae", mixed=True),
    ModelRecord(
        "llorma-vae",
        _preset("llorma_vae"),
        wide=_ONE_WIDE,
        paper=_ONE_PAPER,
        base="mult-vae",
        group="control",
        label="LLORMA_VAE",
    ),
    # The models of the paper's authors with their own settings, which are compared as they are.
    ModelRecord(
        "paper-loca-vae",
        _preset("loca_vae"),
        base="mult-vae",
        group="authors",
        label="LOCA_VAE, authors' settings",
    ),
    ModelRecord(
        "paper-loca-ease",
        _preset("loca_ease"),
        base="ease",
        group="authors",
        label="LOCA_EASE, authors' settings",
    ),
    ModelRecord(
        "paper-ensemble-vae",
        _preset("ensemble_vae"),
        base="mult-vae",
        control="ensemble",
        control_of=("paper-loca-vae",),
        label="Ensemble",
    ),
    ModelRecord(
        "paper-ensemble-ease",
        _preset("ensemble_ease"),
        base="ease",
        control="ensemble",
        control_of=("paper-loca-ease",),
        label="Ensemble",
    ),
    ModelRecord("auto", "local.auto.Auto", group="beyond"),
)
RECORDS: dict[str, ModelRecord] = {record.name: record for record in _RECORDS}
MODELS: dict[str, Callable[[], Recommender]] = {record.name: record.make for record in _RECORDS}


def _kinds(**paths: str) -> dict[str, Callable[[], Any]]:
    """Return what makes each kind of component with its defaults; classes are loaded only then."""

    def maker(path: str) -> Callable[[], Any]:
        return lambda: _class(path)()

    return {name.replace("_", "-"): maker(path) for name, path in paths.items()}


# The kinds of each exchangeable component, by the class that parameters are annotated with.
COMPONENTS: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "CommunityFinder": {
        **_kinds(
            kernels="communities.kernel.Kernels",
            mixtures="communities.mixture.Mixtures",
            random_groups="communities.random_groups.RandomGroups",
            best_of="communities.best_of.BestOf",
        ),
        "permuted": _permuted_mixtures,
    },
    "Combiner": _kinds(
        global_share="local.combiner.GlobalShare",
        fixed_share="local.combiner.FixedShare",
        local_only="local.combiner.LocalOnly",
    ),
    "Engine": _kinds(
        loop="local.engines.loop.Loop",
        stacked="local.engines.stacked.engine.Stacked",
        differences="local.engines.differences.engine.Differences",
        stop_each="paper.stopping.StopEach",
    ),
    "Recommender": MODELS,
    "Embedder": ChainMap(_kinds(svd="communities.embeddings.TruncatedSVD"), MODELS),
}


class _Classes(UserDict[str, Any]):
    """Classes by name, each loaded from its place when it is first needed."""

    def __getitem__(self, name: str) -> type:
        return _class(self.data[name])


_INSIDE = (
    "local.loca.Loca",
    "local.ensemble.Ensemble",
    "local.blend.Blend",
    "local.local_models.SeparateModels",
    "local.auto.Trial",
    "local.blend_search.PartEarned",
    "local.combiner.FixedShare",
    "local.combiner.GlobalShare",
    "local.combiner.LocalOnly",
    "local.community_description.CommunityDescription",
    "local.community_models.CommunityModels",
    "local.engines.differences.compressed_weights.CompressedWeights",
    "local.engines.differences.ease_differences.EaseDifferences",
    "local.engines.differences.engine.Differences",
    "local.engines.loop.Loop",
    "local.engines.stacked.engine.Stacked",
    "local.engines.stacked.networks.StackedNetworks",
    "local.community_description.Locality",
    "local.sharded_models.ShardedModels",
    "communities.best_of.BestOf",
    "communities.embeddings.GivenEmbeddings",
    "communities.embeddings.TruncatedSVD",
    "communities.geometry.Quantile",
    "communities.kernel.KernelCommunities",
    "communities.kernel.Kernels",
    "communities.mixture.MixtureCommunities",
    "communities.mixture.Mixtures",
    "communities.multinomial_mixture.MultinomialMixture",
    "communities.random_groups.RandomGroupCommunities",
    "communities.random_groups.RandomGroups",
    "paper.permuted.Permuted",
    "paper.permuted.PermutedCommunities",
    "paper.stopping.StopEach",
)
_PATHS = (*(one.maker for one in _RECORDS if isinstance(one.maker, str)), *_INSIDE)
# The classes that a model folder may hold, by the name that it writes.
KINDS: Mapping[str, type] = _Classes({path.rpartition(".")[2]: path for path in _PATHS})


def register(record: ModelRecord) -> None:
    """Add a model of your own to those that commands and settings know by name.

    Parameters
    ----------
    record : ModelRecord
        Its name must be new.

    Raises
    ------
    ConfigError
        Where there is a model of that name.
    """
    if record.name in MODELS:
        raise ConfigError(f"register: there is a model {record.name!r} already; take another name")
    RECORDS[record.name] = record
    MODELS[record.name] = record.make


def names_of(*groups: Group) -> tuple[str, ...]:
    """Return the names of the models in these groups, group by group."""
    records = RECORDS.values()
    return tuple(record.name for group in groups for record in records if record.group == group)


def is_tuned(name: str, model: Recommender) -> bool:
    """Return whether a budget tunes the model.

    `Auto` searches by itself, and a model with the authors' settings stays as it is.
    """
    return model.role != "auto" and (name not in RECORDS or RECORDS[name].wide is not None)


def space_of(name: str, kind: SpaceName) -> Space:
    """Return the space of a model: `wide`, ours, or `paper`, the values that the paper tried."""
    check_choice("space", kind, get_args(SpaceName))
    spaces: dict[str, Space] = {
        name: getattr(record, kind)
        for name, record in RECORDS.items()
        if getattr(record, kind) is not None
    }
    if name in spaces:
        return spaces[name]
    has_wide = name in RECORDS and RECORDS[name].wide is not None
    hint = "; --space wide has one" if has_wide else did_you_mean(name, spaces)
    raise ConfigError(
        f"no {kind} space to tune {name!r} in{hint or f'; there is one for {chr(44).join(spaces)}'}"
    )


def load(folder: str | Path, *, classes: Sequence[type] = (), verify: bool = False) -> Recommender:
    """Load the fitted model that was saved in a folder; refuse anything that cannot be trusted.

    Large arrays are mapped into memory and read as they are needed.

    Parameters
    ----------
    folder : str or Path
        Where `save` wrote the model.
    classes : sequence of type, default ()
        Classes of your own that the model is made of: models, finders, communities, combiners and
        engines. Nothing else in a folder is run.
    verify : bool, default False
        Read all arrays now and compare their checksums, which notices every changed bit.

    Returns
    -------
    Recommender
        The model, with the scores it had when it was saved.

    Raises
    ------
    ModelFileError
        Where a file is missing, damaged, foreign, or does not fit the others.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.EASE(l2=10).fit(data)
    >>> model.save("my-model")
    >>> loaded = loca.load("my-model", verify=True)
    >>> loaded
    EASE(l2=10)
    >>> bool((loaded.score(data.histories()) == model.score(data.histories())).all())
    True
    """
    own = {kind.__name__: kind for kind in classes}
    for name, kind in own.items():
        if name in KINDS and KINDS[name] is not kind:
            raise ConfigError(
                f"classes: {name} is the name of a class of loca's; give yours another"
            )
    model = load_model(folder, ChainMap(own, cast(Any, KINDS)), verify=verify)
    if not isinstance(model, Recommender):
        raise ModelFileError(
            f"{folder}: expected a recommender, found a part of one, {type(model).__name__}"
        )
    if model.train_data_ is not None:
        try:
            model.check_known(model.train_data_)
        except ModelFileError as error:
            raise ModelFileError(f"{folder}: {error}") from None
    return model
