"""The demonstration: planted data, an honest comparison, a saved model, and a picture."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import loca
from loca.data.synthetic import PlantedData
from loca.deferred import torch
from loca.errors import ConfigError, DataError, LocaError
from loca.evaluation.evaluate import Evaluation, measure
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.evaluation.significance import PairedDifference, paired_difference
from loca.experiments.comparison import Comparison, compare
from loca.experiments.report import write_tables
from loca.local.engines.engine import scaled_weights
from loca.models.recommender import Recommender, clone, fitted
from loca.paper.charts import as_png
from loca.paper.permuted import Permuted
from loca.persistence.atomic_write import write_whole
from loca.typing import FloatArray, IntArray

L2_CHOICES = (30.0, 100.0, 300.0)
# Each local model and what it is held against; what it earns over the last of these is locality.
PAIRS = (
    ("loca-ease", "ease"),
    ("loca-ease", "ensemble-ease"),
    ("loca-ease", "dealt-ease"),
    ("loca-vae", "mult-vae"),
    ("loca-vae", "ensemble-vae"),
)
# Distinct for colour-blind readers too (Paul Tol's bright scheme).
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_UNCOVERED = "#dddddd"
_MOST_USERS = 1500


@dataclass(frozen=True, eq=False)
class Demonstration:
    """What the demonstration found.

    That is the comparison, the bound that knows the communities, and one user's answer. `purity` is
    the share of the users for whom the model finds the right community.
    """

    comparison: Comparison
    bound: Evaluation
    purity: float
    user: str
    answer: str
    explanation: str
    next_commands: tuple[tuple[str, str], ...]

    def verdicts(self) -> list[str]:
        """Return what locality earned, in one line for each control that was compared."""
        metric = self.comparison.metric
        values = {
            outcome.name: outcome.evaluation.values[metric] for outcome in self.comparison.measured
        }
        lines = []
        for name, other in PAIRS:
            if name in values and other in values:
                paired = paired_difference(values[name], values[other], seed=self.bound.seed)
                lines.append(f"{name} minus {other}: {_in_words(paired, Metric.label_of(metric))}")
        return lines

    def bound_line(self) -> str:
        """Return the upper bound beside what was reached, and the share of the gain that is."""
        metric = self.comparison.metric
        base = self.comparison.of("ease").evaluation.means()[metric]
        reached = self.comparison.of("loca-ease").evaluation.means()[metric]
        best = self.bound.means()[metric]
        line = (
            f"one EASE per true community, knowing who belongs where, reaches {best:.4f} "
            f"({best / base - 1:+.1%} over ease); loca-ease, which has to find the communities, "
            f"reaches {reached:.4f} ({reached / base - 1:+.1%})"
        )
        if best > base:
            line += f": {(reached - base) / (best - base):.0%} of that gain"
        return line

    def purity_line(self) -> str:
        """Return how many users are where they belong, by the communities of the model."""
        return (
            f"purity {self.purity:.1%}: the share of users whose found community is mostly their "
            "own true community"
        )

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "verdicts": self.verdicts(),
            "bound": {
                "metric": self.comparison.metric,
                "score": self.bound.means()[self.comparison.metric],
                "what": self.bound_line(),
            },
            "purity": self.purity,
            "comparison": self.comparison.to_json(),
            "user": self.user,
            "recommended": self.answer.split("\n"),
            "next": [command for command, _ in self.next_commands],
        }


def _in_words(paired: PairedDifference, metric: str) -> str:
    verdict = "zero lies within"
    if paired.low > 0:
        verdict = "above zero"
    elif paired.high < 0:
        verdict = "below zero"
    return (
        f"{paired.mean:+.4f} {metric} ({paired.relative:+.1%}), "
        f"paired 95 % interval {paired.low:+.4f} … {paired.high:+.4f}: {verdict}"
    )


def demo_models(seed: int, users: int) -> dict[str, list[Recommender]]:
    """Return the candidates of each model; all on EASE choose from the same l2.

    An ensemble is as large as its Loca may be. The communities of the control have members drawn at
    random: two mixtures of as many as were planted.
    """
    n_eases = min(40, users)
    n_networks = min(10, users)
    # Small and quick enough to train twenty of them while somebody waits.
    vae = loca.MultVAE(
        latent=128,
        kl_weight=0.05,
        anneal_steps=300,
        learning_rate=5e-3,
        epochs=30,
        patience=4,
        evaluate_every=2,
        seed=seed,
    )
    eases = [loca.EASE(l2=l2) for l2 in L2_CHOICES]
    mixtures = loca.Mixtures().with_n(n_networks)
    permuted = Permuted(finder=loca.Mixtures().with_n(min(12, users)))
    best = loca.BestOf(n=n_eases)
    return {
        "popularity": [loca.Popularity()],
        "ease": [*eases],
        "mult-vae": [vae],
        "ensemble-ease": [loca.Ensemble(base=ease, models=n_eases, seed=seed) for ease in eases],
        "ensemble-vae": [loca.Ensemble(base=vae, models=n_networks, seed=seed)],
        "loca-vae": [loca.Loca(base=vae, communities=mixtures, seed=seed)],
        "dealt-ease": [loca.Loca(base=ease, communities=permuted, seed=seed) for ease in eases],
        "loca-ease": [loca.Loca(base=ease, communities=best, seed=seed) for ease in eases],
    }


def run_demo(
    folder: Path,
    *,
    seed: int = 0,
    users: int = 4000,
    recency: loca.Recency | None = None,
    models: Mapping[str, Sequence[Recommender]] | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> Demonstration:
    """Compare on planted data, save, reload, recommend, explain and draw; leave all in the folder.

    Parameters
    ----------
    folder : Path
        Where tables, picture, model and next commands go.
    seed, users : int
        Of the planted data; the seed is that of all models too.
    recency : Recency or None
        Weights histories wherever they are used to answer, in the saved model too; equal times have
        no order.
    models : mapping of str to sequence of Recommender, or None
        The candidates of each model by name; None takes `demo_models`.
    note : callable
        Is called with one line as each of the five steps begins.
    """
    with ExitStack() as limits:
        _take_one_thread(limits)
        models = models or demo_models(seed, users)
        note(
            f"1/5  planting {users:,} users in 6 communities that group the same 300 items "
            "differently"
        )
        planted = loca.planted_communities(users=users, seed=seed)
        split = loca.leave_last_out(planted.interactions, test=5, validation=2)
        split = split.with_recency(recency)
        note("2/5  comparing models: chosen on validation, refitted, tested once")
        comparison = compare(models, split, keep=("loca-ease",), seed=seed)
        # Now, so that nothing that fails later costs the comparison.
        write_tables(comparison, folder)
        note("3/5  the upper bound: one model per true community")
        bound = evaluate_true_communities(models["ease"], planted, split, seed=seed)
        note("4/5  saving the LOCA model, loading it again and asking it")
        model = _saved_and_loaded(comparison.models["loca-ease"], split, folder / "model")
        answer = _answer(model, planted, split)
        note("5/5  drawing the communities")
        true = planted.memberships.argmax(axis=1)
        purity = draw_communities(model, true, folder / "communities.png")
    demonstration = Demonstration(
        comparison=comparison,
        bound=bound,
        purity=purity,
        user=answer.user,
        answer=answer.recommended,
        explanation=answer.explanation,
        next_commands=next_commands(folder, answer.user, answer.titles),
    )
    _write(demonstration, folder)
    return demonstration


def _take_one_thread(limits: ExitStack) -> None:
    """Limit all libraries to one thread until the stack is closed.

    For matrices this small a second thread earns nothing, and on a busy machine waiting threads
    cost minutes.
    """
    # Limits hold for libraries that are loaded: those of LAPACK and k-means would come later.
    import scipy.linalg  # noqa: F401
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits.callback(torch.set_num_threads, torch.get_num_threads())
    limits.enter_context(threadpool_limits(limits=1))
    torch.set_num_threads(1)


def _saved_and_loaded(model: Recommender, split: loca.Split, path: Path) -> Any:
    histories = split.test.history_matrix
    model.save(path)
    loaded = loca.load(path)
    if not np.array_equal(model.score(histories), loaded.score(histories)):
        raise LocaError(
            f"{path}: the loaded model does not score as the saved one did; please report this"
        )
    return loaded


class _Answer(NamedTuple):
    """What the model recommends to one user, why, and the titles of another user's newest items."""

    user: str
    recommended: str
    explanation: str
    titles: str


def _answer(model: Any, planted: PlantedData, split: loca.Split) -> _Answer:
    # The first tested user who belongs to two communities, so that the explanation shows both.
    shared = np.flatnonzero((planted.memberships > 0).sum(axis=1) > 1)
    row = int(shared[0]) if len(shared) else 0
    user = str(split.test.histories.users.ids([row])[0])
    listed = loca.recommendation_table(model, [user], 5).iter_rows(named=True)
    lines = [f"{item['rank']}. {item['title']} ({item['item']})" for item in listed]
    known: loca.Interactions = fitted(model.train_data_, model)
    titles = [known.items.label(int(item)) for item in known.items_of(0)[-3:]]
    explanation = str(model.explain(user, n=3))
    return _Answer(user, "\n".join(lines), explanation, ",".join(titles))


def _write(demonstration: Demonstration, folder: Path) -> None:
    commands = [f"# {about}\n{command}\n" for command, about in demonstration.next_commands]
    page = "\n".join(["# What to try next", "", "```sh", *commands, "```", ""])
    write_whole(folder / "NEXT.md", page)
    document = json.dumps(demonstration.document(), ensure_ascii=False, indent=1, allow_nan=False)
    write_whole(folder / "demo.json", document + "\n")
    explanation = f"For {demonstration.user}\n{demonstration.explanation}\n"
    write_whole(folder / "explanation.txt", explanation)


def next_commands(folder: Path, user: str, titles: str) -> tuple[tuple[str, str], ...]:
    """Return commands to try after the demonstration, each with a word on what it does."""
    model = shlex.quote(str(folder / "model"))
    out = shlex.quote(str(folder / "mine"))
    history = shlex.quote(titles)
    smaller = (
        "--models ease,ensemble,loca-ease --seed 1 --set planted.users=1000 "
        "--set loca-ease.communities.n=20"
    )
    return (
        (f"loca recommend {model} --user {user} -n 5", "a known user's list"),
        (f"loca recommend {model} --history {history}", "anybody's list, from a few titles"),
        (f"loca explain {model} --user {user}", "what a list is made of"),
        (
            "loca data describe planted",
            "the built-in data in numbers, and how far its order can be trusted",
        ),
        (f"loca compare planted {smaller}", "another draw of the data, smaller"),
        (
            f"loca fit planted --model loca-ease --choose base.l2=100,300 --out {out}",
            "a model of your own; put the path of your ratings in place of planted",
        ),
        ("loca doctor", "what this machine has"),
    )


def evaluate_true_communities(
    candidates: Sequence[Recommender],
    planted: PlantedData,
    split: loca.Split,
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Evaluation:
    """Return what a model would reach that knows who belongs where, under the clean protocol.

    The base is chosen from `candidates` on validation, refitted on train + validation, and measured
    on test once. No model that has to find the communities itself is expected to do better.
    """
    if split.validation is None or not candidates:
        raise ConfigError(
            "the upper bound needs candidates, and a validation part to choose one on"
        )
    if len(planted.memberships) != planted.interactions.n_users:
        raise DataError("planted data: expected the memberships of every user")

    def shares_of(interactions: loca.Interactions) -> FloatArray:
        """Return the true shares of these users in the communities, users × communities."""
        rows = planted.interactions.users.rows(interactions.users.values.tolist())
        return np.asarray(planted.memberships[rows], dtype=np.float32)

    def evaluate_with(
        base: Recommender, train: loca.Interactions, held_out: loca.HeldOut, lengths: Iterable[int]
    ) -> Evaluation:
        """Fit a model per community with the true shares as weights, and answer with them."""
        shares = shares_of(held_out.histories)
        combined = np.zeros((), dtype=np.float32)
        for community, weights in enumerate(shares_of(train).T):
            scaled = scaled_weights(weights, train.n_users)
            model = clone(base).fit(train, user_weights=scaled)
            combined = combined + shares[:, [community]] * model.score(held_out.history_matrix)
        return measure(lambda user_rows: combined[user_rows], held_out, at=lengths, seed=seed)

    validated = []
    for base in candidates:
        evaluation = evaluate_with(base, split.train, split.validation, (DEFAULT_METRIC.k,))
        validated.append(evaluation.means()[str(DEFAULT_METRIC)])
    best = candidates[int(np.argmax(validated))]
    return evaluate_with(best, split.train_and_validation, split.test, at)


def draw_communities(model: loca.Loca, true: IntArray, path: Path) -> float:
    """Write a PNG of the users that the model knows, by true and by found community.

    On the right all users of a found community wear the colour of the true community that most of
    them have, so that the two halves are alike where the communities were found; users whom no
    community answers for are grey.

    Returns
    -------
    float
        The purity.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    communities = fitted(model.local_, model).communities
    positions = communities.locate(fitted(model.train_data_, model).histories())
    matched = match_communities(strongest_communities(model, positions), true)
    purity = float((matched == true).mean())
    drawn = np.linspace(0, len(true) - 1, min(len(true), _MOST_USERS)).astype(np.int64)
    # Two dimensions, near where the positions are near.
    perplexity = min(50.0, (len(drawn) - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, init="pca", random_state=0, max_iter=500)
    points = np.asarray(layout.fit_transform(positions[drawn]), dtype=np.float32)
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    by_chance = np.bincount(true).max() / len(true)
    halves = {
        "The truth: to which community each user belongs most": true,
        f"Found by the model: purity {purity:.0%}, the share who are right "
        f"(by chance {by_chance:.0%})": matched,
    }
    for axes, (title, labels) in zip(figure.subplots(1, 2), halves.items(), strict=True):
        _draw_half(axes, title, points, labels[drawn], np.unique(labels))
    legend = figure.axes[-1].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=7, markerscale=1.5, frameon=False)
    figure.suptitle(
        f"{len(drawn):,} users, a dot each; those whom the model takes to be alike lie near one "
        "another"
    )
    write_whole(path, as_png(figure, dpi=110))
    return purity


def _draw_half(
    axes: Any, title: str, points: FloatArray, labels: IntArray, communities: IntArray
) -> None:
    for community in communities.tolist():
        is_covered = community >= 0
        axes.scatter(
            *points[labels == community].T,
            s=11,
            color=_COLOURS[community % len(_COLOURS)] if is_covered else _UNCOVERED,
            alpha=0.75,
            linewidths=0,
            label=f"community {community + 1}" if is_covered else "nobody answers",
        )
    axes.set_title(title, fontsize=11)
    axes.set(xticks=[], yticks=[])


def strongest_communities(model: loca.Loca, positions: npt.NDArray[Any]) -> IntArray:
    """Return the community to which each user belongs most; −1 where there is none."""
    memberships = fitted(model.local_, model).communities.memberships(positions)
    has_any = np.diff(memberships.indptr) > 0
    return np.where(has_any, np.asarray(memberships.argmax(axis=1)).ravel(), -1)


def match_communities(found: IntArray, true: IntArray) -> IntArray:
    """Return for each user the true community that most users of the found community have.

    It is −1 for who was not found. The purity is the share of users who have it themselves.
    """
    # (found communities, true communities); the last row is that of −1.
    together = np.zeros((found.max() + 2, true.max() + 1), dtype=np.int64)
    np.add.at(together, (found, true), 1)
    return np.where(found < 0, -1, together.argmax(axis=1)[found])
