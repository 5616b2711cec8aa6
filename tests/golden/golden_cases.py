"""What the golden outputs are of: commands and fitted models, all small and clear-cut.

A refactoring must not change what a user sees, so nothing here asks for more of the package than a
user does: the commands, the public classes, `loca.load` and `score`. The one exception is
`catalogue_names`.

Golden numbers must hold on other processors too, which sum in other orders. So nothing may hang on
a near tie: networks learn a number of epochs that is set (`evaluate_every` is all of them, so that
there is one to choose), their local models stand around random anchors (the best-covered among
near-equal neighbourhoods may change) and have a set share of the global model.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import loca
from loca.cli.main import main

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
DOCUMENTS = HERE / "documents"
SCORES = HERE / "scores"
DIGESTS = HERE / "results.sha256"
RATINGS = HERE / "ratings.csv"
SETTINGS = HERE / "settings.toml"

Settings = Mapping[str, object]


# -- Settings -------------------------------------------------------------------------------------


def set_each(settings: Settings) -> tuple[str, ...]:
    """Return words of the command line: `--set` for each setting."""
    return tuple(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))


def under(name: str, words: Iterable[str]) -> tuple[str, ...]:
    """Return the same settings for one model of several."""
    return tuple(word if word == "--set" else f"{name}.{word}" for word in words)


def inside(name: str, settings: Settings) -> dict[str, object]:
    """Return settings of a component."""
    return {f"{name}.{key}": value for key, value in settings.items()}


PLANTED = (
    "planted",
    *set_each(
        {
            "planted.users": 150,
            "planted.items": 48,
            "planted.groups": 6,
            "planted.communities": 2,
            "planted.history": 14,
            "planted.tastes": 1.0,
            "planted.seed": 3,
        }
    ),
)
LISTS = ("--at", "5,10,20")
FILE = ("ratings.csv", "--min-rating", "2")

NETWORK = {"latent": 8, "learning_rate": 0.01, "epochs": 6, "evaluate_every": 6, "batch_size": 50}
# The KL term is there from early on, so that it is noticed.
VAE = {**NETWORK, "anneal_steps": 4}
REC_VAE = {**NETWORK, "hidden": 12, "epochs": 2, "evaluate_every": 2}
WMF = {"factors": 6, "confidence": 5, "user_l2": 5, "item_l2": 5, "iterations": 4}
SLIM = {"tolerance": 1e-6}

HALF = {"combiner.kind": "fixed-share", "combiner.share": 0.5}
_KERNELS = {"communities.kind": "kernels", "communities.n": 3, **HALF}
LOCAL = {
    **_KERNELS,
    "communities.anchors": "random",
    "communities.answer_bandwidth": "1.3*q0.9",
}
LOCAL_EASE = {
    **_KERNELS,
    "communities.answer_bandwidth": "q0.9",
    "communities.embedding.kind": "svd",
    "communities.embedding.dimensions": 8,
}
# Narrow bandwidths of the paper are distances; here they reach far enough for three anchors to
# answer for somebody.
PAPER = {
    "communities.n": 3,
    "communities.anchors": "random",
    "communities.train_bandwidth": 1.2,
    "communities.answer_bandwidth": 0.9,
}
MIXED = {"n": 4, "mixtures": 2}
FEW = {"models": 3}

NETWORKS_COMPARED = (
    *("--models", "popularity,ease,mult-vae,ensemble,loca-vae"),
    *under("mult-vae", set_each(VAE)),
    *under("loca-vae", set_each({**inside("base", VAE), **LOCAL})),
)
EASE_COMPARED = (
    *("--models", "popularity,item-knn,ease,next-ease,ensemble,loca-ease"),
    *("--choose", "ease.l2=1,20"),
    *under("loca-ease", set_each({"base.l2": 20, **LOCAL_EASE})),
)


# -- Commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call of `loca`.

    `reads` names the fitted models that the call finds in its folder, `writes` the files to look at
    beside its document, and `is_trained` says that its numbers are a network's.
    """

    words: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    is_trained: bool = False


COMMANDS: dict[str, Case] = {
    "describe": Case(("data", "describe", *PLANTED)),
    "describe-file": Case(("data", "describe", *FILE)),
    "fetch-list": Case(("data", "fetch", "--list", "--to", "data")),
    "compare-clean": Case(("compare", *PLANTED, *LISTS, *EASE_COMPARED)),
    "compare-clean-networks": Case(("compare", *PLANTED, *LISTS, *NETWORKS_COMPARED)),
    "compare-paper": Case(("compare", *PLANTED, *LISTS, *EASE_COMPARED, "--protocol", "paper")),
    "compare-paper-networks": Case(
        ("compare", *PLANTED, *LISTS, *NETWORKS_COMPARED, "--protocol", "paper")
    ),
    "compare-recency": Case(
        ("compare", *PLANTED, *LISTS, "--models", "ease,next-ease", "--recency", "4")
    ),
    "compare-tuned": Case(
        ("compare", *PLANTED, *LISTS, "--models", "ease", "--choose", "l2=1,20", "--trials", "2")
    ),
    "compare-file": Case(
        ("compare", *FILE, *LISTS, "--models", "popularity,ease", "--out", "out", "--no-refit"),
        writes=(
            "out/comparison.csv",
            "out/comparison.md",
            "out/differences.csv",
            "out/comparison.toml",
        ),
    ),
    "fit-loca-ease": Case(
        ("fit", *PLANTED, "--out", "m", *set_each({"base.l2": 20, **LOCAL_EASE}))
    ),
    "fit-choice": Case(("fit", *PLANTED, "--model", "ease", "--out", "m", "--choose", "l2=1,20")),
    "fit-mult-vae": Case(("fit", *PLANTED, "--model", "mult-vae", "--out", "m", *set_each(VAE))),
    "fit-recency": Case(
        ("fit", *PLANTED, "--model", "ease", "--out", "m", "--recency", "30d:power:0.1")
    ),
    # One trial is EASE, a closed form; a second would be networks of its own choice.
    "fit-auto": Case(
        ("fit", *PLANTED, "--model", "auto", "--trials", "1", "--budget", "2h", "--out", "m")
    ),
    "plan-loca-ease": Case(("plan", *PLANTED, *set_each({"base.l2": 20, **LOCAL_EASE}))),
    "plan-mult-vae": Case(("plan", *PLANTED, "--model", "mult-vae", *set_each(NETWORK))),
    "evaluate": Case(("evaluate", "ease", *FILE, "--at", "5,10"), reads=("ease",)),
    "update": Case(("update", "ease", *FILE, "--out", "m"), reads=("ease",)),
    "recommend": Case(
        ("recommend", "ease", "--user", "u03", "--user", "u11", "-n", "5"), reads=("ease",)
    ),
    "recommend-history": Case(
        ("recommend", "loca-ease", "--history", "i03,i07,i11", "--never", "i04", "-n", "4"),
        reads=("loca-ease",),
    ),
    "explain-ease": Case(("explain", "ease", "--user", "u03", "--item", "i05"), reads=("ease",)),
    "explain-loca-ease": Case(
        ("explain", "loca-ease", "--user", "u03", "-n", "3"), reads=("loca-ease",)
    ),
    "explain-loca-vae": Case(
        ("explain", "loca-vae", "--history", "i03,i07,i11", "-n", "3"),
        reads=("loca-vae",),
        is_trained=True,
    ),
    "explain-blend": Case(
        ("explain", "blend", "--user", "u03", "-n", "3"), reads=("blend",), is_trained=True
    ),
    "explain-auto": Case(("explain", "auto", "--user", "u03", "-n", "3"), reads=("auto",)),
    "tune": Case(
        (
            *("tune", *PLANTED, "--model", "ease,ensemble-ease", "--trials", "2"),
            *("--out", "best.toml", "--choose", "ease.l2=1,20"),
            *("--choose", "ensemble-ease.models=2,6", "--set", "ease.denoising=0.1"),
        ),
        writes=("best.toml",),
    ),
    "tune-wide": Case(
        ("tune", *PLANTED, "--model", "ease", "--trials", "2", "--set", "ease.l2=20")
    ),
    "table1": Case(
        ("reproduce", "table1", "--data", "ratings.csv", "--out", "out"),
        writes=("out/table1.csv", "out/table1.md"),
    ),
    "table2": Case(
        (
            *("reproduce", "table2", "--data", "ratings.csv", "--out", "out"),
            *("--protocol", "both", "--seeds", "1", "--models", "popularity,ease,loca-ease"),
            *("--local-models", "3", "--sweep-models", "3", "--settings", "settings.toml"),
        ),
        writes=("out/table2.csv", "out/table2.md"),
    ),
    "doctor": Case(("doctor",)),
    "demo": Case(("demo", "--users", "100", "--out", "demo")),
}


def document_of(name: str, folder: Path) -> dict[str, Any]:
    """Return the JSON document of a command, called in an empty folder, and files that it wrote."""
    case = COMMANDS[name]
    shutil.copy(RATINGS, folder)
    shutil.copy(SETTINGS, folder)
    for model in case.reads:
        fitted_model(model).save(folder / model)
    document = json.loads(call(folder, *case.words, "--json"))
    document = TRIMMED.get(name, _untrimmed)(document)
    if case.writes:
        document["files"] = {path: _read(folder / path) for path in case.writes}
    return document


def call(folder: Path, *words: str) -> str:
    """Return what a command prints, in this process and a folder."""
    output = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output):
        code = main(list(words))
    assert code == 0, words
    return output.getvalue()


def _read(path: Path) -> list[Any]:
    """Return the rows of a table, or the lines of a text without seconds."""
    text = path.read_text()
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text)))
    lines = [re.sub(r"in \d+\.\d+ s$", "in … s", line) for line in text.splitlines()]
    column = None
    for number, line in enumerate(lines):
        cells = line.split(" | ")
        if "seconds" in line and line.startswith("|"):
            column = [cell.strip(" |") for cell in cells].index("seconds")
        elif not line.startswith("|"):
            column = None
        elif column is not None and "---" not in line:
            is_last = column + 1 == len(cells)
            cells[column] = "… |" if is_last else "…"
            lines[number] = " | ".join(cells)
    return lines


def _untrimmed(document: dict[str, Any]) -> dict[str, Any]:
    return document


def _trimmed_demo(document: dict[str, Any]) -> dict[str, Any]:
    """Return the demonstration without what networks and choices among near-equal settings decide.

    Its figures are those of `compare` and are held there.
    """
    certain = ("popularity", "ease")
    compared = document["comparison"]
    for model in compared["models"]:
        if model["name"] not in certain:
            model.clear()
    compared["differences"] = [
        [difference["first"], difference["second"]] for difference in compared["differences"]
    ]
    document["verdicts"] = [
        re.sub(r"[-+]?\d+\.\d+|above zero|below zero|zero lies within", "…", verdict)
        for verdict in document["verdicts"]
    ]
    document["bound"]["what"] = re.sub(r"[-+]?\d+\.\d+", "…", document["bound"]["what"])
    document["recommended"] = len(document["recommended"])
    document["next"] = [command.split()[:2] for command in document["next"]]
    return document


TRIMMED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"demo": _trimmed_demo}


# -- Models that commands read --------------------------------------------------------------------


def _models() -> dict[str, Callable[[], loca.Recommender]]:
    """Return what makes the models that commands read, for 40 users and 20 items."""
    ease = loca.EASE(l2=20.0)
    vae = loca.MultVAE(latent=4, learning_rate=0.02, epochs=5, batch_size=20)
    narrow = loca.Kernels(n=3, answer_bandwidth=loca.Quantile(0.9))
    half = loca.FixedShare(0.5)
    return {
        "ease": lambda: ease,
        "loca-ease": lambda: loca.Loca(
            base=ease,
            communities=loca.clone(narrow, embedding=loca.TruncatedSVD(dimensions=4)),
            combiner=half,
            engine=loca.Differences(),
        ),
        "loca-vae": lambda: loca.Loca(base=vae, communities=narrow, combiner=half),
        "blend": lambda: loca.Blend(parts=[ease, loca.Popularity(), vae]),
        "auto": lambda: loca.Auto(chosen=loca.Blend(parts=[ease, loca.NextEASE(l2=20.0)])),
    }


def fitted_model(name: str) -> loca.Recommender:
    """Return one of the models that commands read, fitted."""
    planted = loca.planted_communities(
        users=40,
        items=20,
        communities=2,
        groups=4,
        tastes=1.0,
        history=8,
        shortest_history=8,
        seed=1,
    )
    split = loca.leave_last_out(planted.interactions, test=1, validation=2)
    return _models()[name]().fit(split.train, validation=split.validation)


# -- Scores of every model of the catalogue -------------------------------------------------------

# What stands behind an @ is the same model in another way of learning.
CATALOGUE: dict[str, Settings] = {
    "popularity": {},
    "item-knn": {"neighbours": 10},
    "wmf": WMF,
    "slim": SLIM,
    "ease": {"l2": 20},
    "ease@denoising": {"l2": 20, "denoising": 0.3},
    "cdae": NETWORK,
    "mult-dae": NETWORK,
    "mult-vae": {**VAE, "hidden": 12},
    "rec-vae": REC_VAE,
    "llorma": {"anchors": 3, "factors": 4, "confidence": 5, "user_l2": 5, "item_l2": 5},
    "sglsvd": {"clusters": 2, "global_rank": 4, "local_rank": 2},
    "next-ease": {"l2": 20},
    "next-vae": NETWORK,
    "llorma-vae": {**inside("base", VAE), "communities.n": 3, **HALF},
    "loca-ease": {"base.l2": 20, **LOCAL_EASE},
    "loca-ease@differences": {"base.l2": 20, **LOCAL_EASE, "engine": "differences"},
    "loca-vae": {**inside("base", VAE), **LOCAL},
    "loca-vae@loop": {**inside("base", VAE), **LOCAL, "engine": "loop"},
    "loca-dae": {**inside("base", NETWORK), **LOCAL},
    "loca-wmf": {**inside("base", WMF), **LOCAL},
    "loca-slim": {**inside("base", SLIM), **LOCAL_EASE},
    "loca-rec-vae": {**inside("base", REC_VAE), **LOCAL},
    "loca-next-ease": {"base.l2": 20, **LOCAL_EASE},
    "loca-next-vae": {**inside("base", NETWORK), **LOCAL},
    "ensemble-ease": {"base.l2": 20, **FEW},
    "ensemble-vae": {**inside("base", VAE), **FEW},
    "ensemble-dae": {**inside("base", NETWORK), **FEW},
    "ensemble-wmf": {**inside("base", WMF), **FEW},
    "ensemble-slim": {**inside("base", SLIM), **FEW},
    "ensemble-rec-vae": {**inside("base", REC_VAE), **FEW},
    "ensemble-next-ease": {"base.l2": 20, **FEW},
    "ensemble-next-ease@differences": {"base.l2": 20, **FEW, "engine": "differences"},
    "ensemble-next-vae": {**inside("base", NETWORK), **FEW},
    "mixture-ease": {"base.l2": 20, **inside("communities", MIXED), **HALF},
    "mixture-vae": {**inside("base", VAE), **inside("communities", MIXED), **HALF},
    "mixture-next-vae": {**inside("base", NETWORK), **inside("communities", MIXED), **HALF},
    "dealt-ease": {"base.l2": 20, **inside("communities.finder", MIXED), **HALF},
    "dealt-vae": {**inside("base", VAE), **inside("communities.finder", MIXED), **HALF},
    "dealt-next-vae": {**inside("base", NETWORK), **inside("communities.finder", MIXED), **HALF},
    "paper-loca-vae": {**inside("base", NETWORK), **PAPER},
    "paper-loca-ease": {**inside("communities.embedding", NETWORK), **PAPER},
    "paper-ensemble-vae": {**inside("base", NETWORK), **FEW},
    "paper-ensemble-ease": FEW,
    "auto": {"chosen": "ease"},
}
CLOSED_FORMS = {
    *("popularity", "item-knn", "slim", "ease", "sglsvd", "next-ease", "auto"),
    *("loca-ease@differences", "ensemble-next-ease@differences", "ease@denoising"),
    *("loca-ease", "loca-slim", "loca-next-ease", "mixture-ease", "dealt-ease"),
    *("ensemble-ease", "ensemble-slim", "ensemble-next-ease", "paper-ensemble-ease"),
}
# Alternating least squares in 32 bits, far from convergence: what a processor rounds grows.
ALTERNATING = {"wmf", "loca-wmf", "ensemble-wmf", "llorma"}

HISTORIES = ((3, 7, 11), (0,), (1, 2, 4, 8, 16), (19, 5, 6, 9, 10, 12, 13))


def catalogue_names() -> set[str]:
    """Return all model names that commands know."""
    from loca.registry import MODELS

    return set(MODELS)


def histories(items: int) -> csr_array:
    """Return a few histories over the first items, all items alike."""
    rows = np.repeat(np.arange(len(HISTORIES)), [len(history) for history in HISTORIES])
    values = np.ones(len(rows), np.float32)
    shape = (len(HISTORIES), items)
    return csr_array((values, (rows, np.concatenate(HISTORIES))), shape=shape, dtype=np.float32)


def fitted_scores(name: str, folder: Path) -> list[list[float]]:
    """Return what a model scores after `loca fit` with nothing held out, at seed 0."""
    words = ("--model", name.partition("@")[0], "--validation", "0", "--out", "m", "--quiet")
    call(folder, "fit", *PLANTED, *words, *set_each(CATALOGUE[name]))
    scores = loca.load(folder / "m").score(histories(48))[:, ::4]
    # With the digits that 32 bits have.
    return [[float(f"{value:.8g}") for value in row] for row in scores.tolist()]


def tolerances(name: str, golden: np.ndarray) -> dict[str, float]:
    """Return how far a fitted model's scores may be from the golden ones."""
    of_each, of_largest = 2e-2, 2e-3
    if name in CLOSED_FORMS:
        of_each, of_largest = 1e-4, 1e-5
    elif name in ALTERNATING:
        of_each, of_largest = 2e-3, 2e-3
    return {"rtol": of_each, "atol": of_largest * float(np.abs(golden).max())}


# -- Digests --------------------------------------------------------------------------------------


def digests() -> dict[str, str]:
    """Return the sha256 of every table of the results, by its path in the project."""
    paths = sorted([*PROJECT.glob("results/*.csv"), *PROJECT.glob("results/*/*.csv")])
    return {
        str(path.relative_to(PROJECT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }
