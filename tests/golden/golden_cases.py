"""What the golden outputs are of: commands, fitted models and saved models, all small and clear-cut.

A refactoring must not change what a user sees, so nothing here asks for more of the package than a user does: the
commands, `loca.load`, `score`, and (to save models anew) the public classes. The one exception is `catalogue_names`.

Golden numbers must hold on other processors too, which sum in other orders. So nothing may hang on a near tie:
networks learn a given number of epochs (`evaluate_every` is all of them, so that there is one to choose), their local
models stand around random anchors (the best-covered among near-equal neighbourhoods may change) and have a given alpha.
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
MODELS = HERE / "models"
SCORES = HERE / "scores"
MODEL_SCORES = HERE / "model_scores"
DIGESTS = HERE / "results.sha256"
RATINGS = HERE / "ratings.csv"
SETTINGS = HERE / "settings.toml"

# What a closed form may differ by between processors, and a network after training.
EXACT = 1e-5
TRAINED = 5e-3
# Values that tell of the machine, the hour or the version; their keys and kinds are compared all the same.
# So are the weights of Auto's blend: of a grid, where neighbours are nearly equal.
UNCERTAIN = {
    "seconds",
    "free",
    "found",
    "found machine",
    "found torch",
    "is_here",
    "chosen.columns",
}
# Of differences between networks: one exchanged pair of items changes them at will.
CHANCES = {"t", "t_p", "t_p_holm"}
# Of all differences: it ranks users, and users whose differences are equal but for the last bit change places.
RANKED, RANKED_TOLERANCE = "wilcoxon", 0.02


# -- Commands ----------------------------------------------------------------------------------------------------------


def settings(**values: object) -> tuple[str, ...]:
    """Words of the command line: `--set` for each, two underscores for a dot."""
    return tuple(
        word
        for key, value in values.items()
        for word in ("--set", f"{key.replace('__', '.')}={value}")
    )


def under(name: str, words: Iterable[str]) -> tuple[str, ...]:
    """The same settings for one model of several."""
    return tuple(word if word == "--set" else f"{name}.{word}" for word in words)


PLANTED = (
    "planted",
    *settings(
        planted__users=150,
        planted__items=48,
        planted__groups=6,
        planted__communities=2,
        planted__history=14,
    ),
    *settings(planted__tastes=1.0, planted__seed=3),
)
LISTS = ("--at", "5,10,20")
NETWORK = {"latent": 8, "learning_rate": 0.01, "epochs": 6, "evaluate_every": 6, "batch_size": 50}
# The KL term is there from early on, so that it is noticed.
VAE = {**NETWORK, "anneal_steps": 4}
BASE = {f"base__{key}": value for key, value in NETWORK.items()}
VAE_BASE = {**BASE, "base__anneal_steps": 4}
_KERNELS = {"anchors": 3, "alpha": 0.5, "communities": "kernel"}
LOCAL = {**_KERNELS, "anchor_selection": "random", "answer_bandwidth": "1.3*q0.9"}
LOCAL_EASE = {**_KERNELS, "answer_bandwidth": "q0.9", "embedding__dimensions": 8}
NETWORKS_COMPARED = (
    *("--models", "popularity,ease,mult-vae,ensemble,loca-vae"),
    *under("mult-vae", settings(**VAE)),
    *under("loca-vae", settings(**VAE_BASE, **LOCAL)),
)
EASE_COMPARED = (
    *("--models", "popularity,item-knn,ease,next-ease,ensemble,loca-ease"),
    *("--choose", "ease.l2=1,20"),
    *under("loca-ease", settings(base__l2=20, **LOCAL_EASE)),
)
FILE = ("ratings.csv", "--min-rating", "2")


@dataclass(frozen=True)
class Case:
    """One call of `loca`: its words, the saved models that it reads, and the files beside its document to look at."""

    words: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


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
    "fit-loca-ease": Case(("fit", *PLANTED, "--out", "m", *settings(base__l2=20, **LOCAL_EASE))),
    "fit-choice": Case(("fit", *PLANTED, "--model", "ease", "--out", "m", "--choose", "l2=1,20")),
    "fit-mult-vae": Case(("fit", *PLANTED, "--model", "mult-vae", "--out", "m", *settings(**VAE))),
    "fit-recency": Case(
        ("fit", *PLANTED, "--model", "ease", "--out", "m", "--recency", "30d:power:0.1")
    ),
    # One trial is EASE, a closed form; a second would be networks of its own choice.
    "fit-auto": Case(
        ("fit", *PLANTED, "--model", "auto", "--trials", "1", "--budget", "2h", "--out", "m")
    ),
    "plan-loca-ease": Case(("plan", *PLANTED, *settings(base__l2=20, **LOCAL_EASE))),
    "plan-mult-vae": Case(("plan", *PLANTED, "--model", "mult-vae", *settings(**NETWORK))),
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
        ("explain", "loca-vae", "--history", "i03,i07,i11", "-n", "3"), reads=("loca-vae",)
    ),
    "explain-blend": Case(("explain", "blend", "--user", "u03", "-n", "3"), reads=("blend",)),
    "explain-auto": Case(("explain", "auto", "--user", "u03", "-n", "3"), reads=("auto",)),
    "tune": Case(
        (
            *(
                "tune",
                *PLANTED,
                "--model",
                "ease,ensemble-ease",
                "--trials",
                "2",
                "--out",
                "best.toml",
            ),
            *(
                "--choose",
                "ease.l2=1,20",
                "--choose",
                "ensemble-ease.models=2,6",
                "--set",
                "ease.denoising=0.1",
            ),
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
            *(
                "reproduce",
                "table2",
                "--data",
                "ratings.csv",
                "--out",
                "out",
                "--protocol",
                "both",
                "--seeds",
                "1",
            ),
            *(
                "--models",
                "popularity,ease,loca-ease",
                "--local-models",
                "3",
                "--sweep-models",
                "3",
            ),
            *("--settings", "settings.toml"),
        ),
        writes=("out/table2.csv", "out/table2.md"),
    ),
    "doctor": Case(("doctor",)),
    "demo": Case(("demo", "--users", "100", "--out", "demo")),
}


def document_of(name: str, folder: Path) -> dict[str, Any]:
    """The JSON document of a command, called in an empty folder, and the files that it wrote there."""
    case = COMMANDS[name]
    shutil.copy(RATINGS, folder)
    shutil.copy(SETTINGS, folder)
    for one in case.reads:
        shutil.copytree(MODELS / one, folder / one)
    document = json.loads(call(folder, *case.words, "--json"))
    files = {one: _read(folder / one) for one in case.writes}
    return TRIMMED.get(name, _whole)(document) | ({"files": files} if files else {})


def call(folder: Path, *words: str) -> str:
    """What a command says, in this process and a folder."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        code = main(list(words))
    assert code == 0, words
    return said.getvalue()


def _read(path: Path) -> list[Any]:
    """The rows of a table, or the lines of a text without seconds."""
    text = path.read_text()
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text)))
    lines = [re.sub(r"in \d+\.\d+ s$", "in … s", line) for line in text.splitlines()]
    place = None
    for number, line in enumerate(lines):
        cells = line.split(" | ")
        if "seconds" in line and line.startswith("|"):
            place = [cell.strip(" |") for cell in cells].index("seconds")
        elif not line.startswith("|"):
            place = None
        elif place is not None and "---" not in line:
            cells[place] = "…" if place + 1 < len(cells) else "… |"
            lines[number] = " | ".join(cells)
    return lines


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    return document


def _demo(document: dict[str, Any]) -> dict[str, Any]:
    """The demonstration without what its networks and its choices among near-equal settings decide.

    Its figures are those of `compare` and are held there.
    """
    certain = ("popularity", "ease")
    compared = document["comparison"]
    for model in compared["models"]:
        if model["name"] not in certain:
            model.clear()
    compared["differences"] = [[one["first"], one["second"]] for one in compared["differences"]]
    document["verdicts"] = [
        re.sub(r"[-+]?\d+\.\d+|above zero|below zero|zero lies within", "…", one)
        for one in document["verdicts"]
    ]
    document["bound"]["what"] = re.sub(r"[-+]?\d+\.\d+", "…", document["bound"]["what"])
    document["recommended"] = len(document["recommended"])
    document["next"] = [one.split()[:2] for one in document["next"]]
    return document


TRIMMED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"demo": _demo}


# -- Scores of every model of the catalogue ----------------------------------------------------------------------------

_REC = {**NETWORK, "hidden": 12, "epochs": 2, "evaluate_every": 2}
_REC_BASE = {f"base__{key}": value for key, value in _REC.items()}
_WMF = {"factors": 6, "confidence": 5, "user_l2": 5, "item_l2": 5, "iterations": 4}
_WMF_BASE = {f"base__{key}": value for key, value in _WMF.items()}
_SLIM = {"tolerance": 1e-6}
_SLIM_BASE = {f"base__{key}": value for key, value in _SLIM.items()}
_EMBEDDED = {"embedding__dimensions": 8}
# Narrow bandwidths of the paper are distances; here they reach far enough for three anchors to answer for somebody.
_PAPER = {
    "anchors": 3,
    "anchor_selection": "random",
    "train_bandwidth": 1.2,
    "answer_bandwidth": 0.9,
}
FEW = {"models": 3}
_MIXED = {"anchors": 4, "alpha": 0.5, "mixtures": 2}
CATALOGUE: dict[str, dict[str, object]] = {
    "popularity": {},
    "item-knn": {"neighbours": 10},
    "wmf": _WMF,
    "slim": _SLIM,
    "ease": {"l2": 20},
    "cdae": NETWORK,
    "mult-dae": NETWORK,
    "mult-vae": {**VAE, "hidden": 12},
    "rec-vae": _REC,
    "llorma": {"anchors": 3, "factors": 4, "confidence": 5, "user_l2": 5, "item_l2": 5},
    "sglsvd": {"clusters": 2, "global_rank": 4, "local_rank": 2},
    "llorma-vae": {**VAE_BASE, "anchors": 3, "alpha": 0.5},
    "loca-ease": {"base__l2": 20, **LOCAL_EASE},
    "loca-vae": {**VAE_BASE, **LOCAL},
    "loca-dae": {**BASE, **LOCAL},
    "loca-wmf": {**_WMF_BASE, **LOCAL},
    "loca-slim": {**_SLIM_BASE, **LOCAL_EASE},
    "loca-rec-vae": {**_REC_BASE, **LOCAL},
    "ensemble-ease": {"base__l2": 20, **FEW},
    "ensemble-vae": {**VAE_BASE, **FEW},
    "ensemble-dae": {**BASE, **FEW},
    "ensemble-wmf": {**_WMF_BASE, **FEW},
    "ensemble-slim": {**_SLIM_BASE, **FEW},
    "ensemble-rec-vae": {**_REC_BASE, **FEW},
    "next-ease": {"l2": 20},
    "next-vae": NETWORK,
    "loca-next-ease": {"base__l2": 20, **LOCAL_EASE},
    "loca-next-vae": {**BASE, **LOCAL},
    "ensemble-next-ease": {"base__l2": 20, **FEW},
    "ensemble-next-vae": {**BASE, **FEW},
    "loca-paper-vae": {**BASE, **_PAPER},
    "loca-paper-ease": {**{f"embedding__{key}": value for key, value in NETWORK.items()}, **_PAPER},
    "ensemble-paper-vae": {**BASE, **FEW},
    "ensemble-paper-ease": FEW,
    **{f"{kind}-ease": {"base__l2": 20, **_MIXED} for kind in ("mixture", "dealt")},
    **{f"{kind}-vae": {**VAE_BASE, **_MIXED} for kind in ("mixture", "dealt")},
    **{f"{kind}-next-vae": {**BASE, **_MIXED} for kind in ("mixture", "dealt")},
    "auto": {"chosen": "ease"},
    # The same models in other ways of learning.
    "loca-ease@stacked": {"base__l2": 20, **LOCAL_EASE, "engine": "stacked"},
    "ensemble-next-ease@stacked": {"base__l2": 20, **FEW, "engine": "stacked"},
    "loca-vae@one_by_one": {**VAE_BASE, **LOCAL, "engine": "one_by_one"},
    "ease@denoising": {"l2": 20, "denoising": 0.3},
}
CLOSED_FORMS = {
    *("popularity", "item-knn", "slim", "ease", "sglsvd", "next-ease", "auto"),
    *("loca-ease@stacked", "ensemble-next-ease@stacked", "ease@denoising"),
    *("loca-ease", "loca-slim", "loca-next-ease", "mixture-ease", "dealt-ease"),
    *("ensemble-ease", "ensemble-slim", "ensemble-next-ease", "ensemble-paper-ease"),
}
# Alternating least squares in 32 bits, far from convergence: what a processor rounds otherwise grows.
ALTERNATING = {"wmf", "loca-wmf", "ensemble-wmf", "llorma"}

HISTORIES = ((3, 7, 11), (0,), (1, 2, 4, 8, 16), (19, 5, 6, 9, 10, 12, 13))


def catalogue_names() -> set[str]:
    """All model names that commands know."""
    from loca.registry import MODELS as known

    return set(known)


def histories(items: int) -> csr_array:
    """A few histories over the first items, all items alike."""
    rows = np.repeat(np.arange(len(HISTORIES)), [len(one) for one in HISTORIES])
    values = np.ones(len(rows), np.float32)
    return csr_array(
        (values, (rows, np.concatenate(HISTORIES))), shape=(len(HISTORIES), items), dtype=np.float32
    )


def fitted_scores(name: str, folder: Path) -> list[list[float]]:
    """What a model of the catalogue scores after `loca fit` with nothing held out, at seed 0."""
    words = (
        "fit",
        *PLANTED,
        "--model",
        name.partition("@")[0],
        "--validation",
        "0",
        "--out",
        "m",
        "--quiet",
    )
    call(folder, *words, *settings(**CATALOGUE[name]))
    return shown(loca.load(folder / "m").score(histories(48))[:, ::4])


def tolerances(name: str, golden: np.ndarray) -> dict[str, float]:
    """How far a fitted model's scores may be from the golden ones, of each and of the largest."""
    each, largest = (
        (1e-4, 1e-5)
        if name in CLOSED_FORMS
        else (2e-3, 2e-3)
        if name in ALTERNATING
        else (2e-2, 2e-3)
    )
    return {"rtol": each, "atol": largest * float(np.abs(golden).max())}


def shown(scores: np.ndarray) -> list[list[float]]:
    """Scores with the digits that 32 bits have."""
    return [[float(f"{value:.8g}") for value in row] for row in scores.tolist()]


# -- Saved models ------------------------------------------------------------------------------------------------------

_SMALL = {"latent": 4, "learning_rate": 0.02, "epochs": 5, "batch_size": 20}
_NARROW: dict[str, Any] = {"anchors": 3, "alpha": 0.5}


def saved_models() -> dict[str, Callable[[], loca.Recommender]]:
    """How the models were made that lie in the folder `models`; asked only to write them anew."""
    ease, wide = loca.EASE(l2=20.0), loca.Quantile(0.9)
    local = {**_NARROW, "embedding": loca.TruncatedSVD(dimensions=4), "answer_bandwidth": wide}
    vae = loca.MultVAE(**_SMALL)
    return {
        "popularity": loca.Popularity,
        "item-knn": lambda: loca.ItemKNN(neighbours=5),
        "ease": lambda: ease,
        "ease-sparse": lambda: loca.clone(ease, keep=4),
        "next-ease": lambda: loca.NextEASE(l2=20.0),
        "slim": lambda: loca.SLIM(l1=0.1, l2=5.0),
        "wmf": lambda: loca.WMF(factors=4),
        "llorma": lambda: loca.LLORMA(anchors=2, factors=3),
        "sglsvd": lambda: loca.SGLSVD(clusters=2, global_rank=3, local_rank=2),
        "cdae": lambda: loca.CDAE(**_SMALL),
        "rec-vae": lambda: loca.RecVAE(hidden=6, **_SMALL),
        "mult-vae": lambda: loca.MultVAE(hidden=6, **_SMALL),
        "mult-dae": lambda: loca.MultDAE(**_SMALL),
        "loca-ease": lambda: loca.Loca(base=ease, engine="stacked", **local),
        "loca-ease-dense": lambda: loca.Loca(base=ease, **local),
        "loca-vae": lambda: loca.Loca(base=vae, answer_bandwidth=wide, **_NARROW),
        "loca-vae-half": lambda: loca.Loca(
            base=vae, answer_bandwidth=wide, answer_precision="float16", **_NARROW
        ),
        "loca-vae-loop": lambda: loca.Loca(
            base=vae, answer_bandwidth=wide, engine="one_by_one", **_NARROW
        ),
        "loca-mixture": lambda: loca.Loca(
            base=vae, communities="mixture", anchors=4, focus=0.7, temperature=2.0
        ),
        "loca-dealt": lambda: loca.Loca(base=ease, communities="dealt", anchors=4),
        "loca-random": lambda: loca.Loca(base=vae, communities="random", anchors=4),
        "ensemble-ease": lambda: loca.Ensemble(base=ease, models=2),
        "ensemble-vae": lambda: loca.Ensemble(base=vae, models=2),
        "blend": lambda: loca.Blend(parts=[ease, loca.Popularity(), vae]),
        "auto": lambda: loca.Auto(chosen=loca.Blend(parts=[ease, loca.NextEASE(l2=20.0)])),
    }


def loaded_scores(name: str) -> list[list[float]]:
    """What a saved model scores for the histories."""
    return shown(loca.load(MODELS / name, verify=True).score(histories(20)))


# -- Digests and comparing ---------------------------------------------------------------------------------------------


def digests() -> dict[str, str]:
    """The sha256 of every table of the results, by its path in the project."""
    paths = sorted([*PROJECT.glob("results/*.csv"), *PROJECT.glob("results/*/*.csv")])
    return {
        str(one.relative_to(PROJECT)): hashlib.sha256(one.read_bytes()).hexdigest() for one in paths
    }


def differences(found: Any, golden: Any, *, at: str = "", loose: bool = False) -> list[str]:
    """Where two documents differ: keys, kinds and words exactly, numbers (in texts too) within what processors do."""
    if isinstance(found, dict) and isinstance(golden, dict):
        if list(found) != list(golden):
            return [f"{at}: keys {list(found)}, not {list(golden)}"]
        loose = loose or _is_of_networks(golden)
        return [
            line
            for key in golden
            if not (loose and key in CHANCES)
            for line in (
                _other_kinds(found[key], golden[key], f"{at}.{key}")
                if key in UNCERTAIN
                else _other_ranks(found[key], golden[key], f"{at}.{key}", loose)
                if key.startswith(RANKED)
                else differences(found[key], golden[key], at=f"{at}.{key}", loose=loose)
            )
        ]
    if isinstance(found, list) and isinstance(golden, list):
        if len(found) != len(golden):
            return [f"{at}: {len(found)} entries, not {len(golden)}"]
        pairs = enumerate(zip(found, golden, strict=True))
        return [
            line
            for place, two in pairs
            for line in differences(*two, at=f"{at}[{place}]", loose=loose)
        ]
    if isinstance(golden, str) and isinstance(found, str):
        return _text_differences(found, golden, at, loose)
    if isinstance(golden, float) and isinstance(found, float):
        return [] if _is_near(found, golden, loose) else [f"{at}: {found}, not {golden}"]
    return (
        []
        if type(found) is type(golden) and found == golden
        else [f"{at}: {found!r}, not {golden!r}"]
    )


def _is_of_networks(one: dict[str, Any]) -> bool:
    names = [one.get(key) for key in ("name", "model", "first", "second")]
    return any(isinstance(name, str) and ("vae" in name or "dae" in name) for name in names)


def _other_kinds(found: Any, golden: Any, at: str) -> list[str]:
    numbers = (int, float)
    alike = type(found) is type(golden) or (
        isinstance(found, numbers) and isinstance(golden, numbers)
    )
    if alike and isinstance(golden, dict):
        alike = list(found) == list(golden)
    return [] if alike else [f"{at}: a {type(found).__name__}, not a {type(golden).__name__}"]


def _other_ranks(found: Any, golden: Any, at: str, loose: bool) -> list[str]:
    wrong = _other_kinds(found, golden, at)
    near = wrong or loose or not golden or abs(float(found) - float(golden)) <= RANKED_TOLERANCE
    return wrong if near else [f"{at}: {found}, not {golden}"]


def _is_near(found: float, golden: float, loose: bool, step: float = 0.0) -> bool:
    relative, absolute = (TRAINED, TRAINED / 2) if loose else (EXACT, EXACT / 10)
    return bool(
        np.isclose(found, golden, rtol=relative, atol=absolute + 1.01 * step, equal_nan=True)
    )


_NUMBER = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?")


def _text_differences(found: str, golden: str, at: str, loose: bool) -> list[str]:
    """Texts are the same but for their numbers with a point, whose last digit may be rounded the other way."""
    wrong = [f"{at}: {found!r}, not {golden!r}"]
    if _NUMBER.sub("…", found) != _NUMBER.sub("…", golden):
        return wrong
    pairs = zip(_NUMBER.findall(found), _NUMBER.findall(golden), strict=True)
    near = all(
        _is_near(float(one), float(other), loose, _last_digit(other)) for one, other in pairs
    )
    return [] if near else wrong


def _last_digit(number: str) -> float:
    digits, _, power = number.partition("e")
    return float(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))
