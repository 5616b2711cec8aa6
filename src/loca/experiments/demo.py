"""The demonstration: planted data, an honest comparison, a saved model that answers and explains, and a picture."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loca
from loca.data.synthetic import PlantedData
from loca.deferred import torch
from loca.errors import ConfigError, DataError, LocaError
from loca.evaluation.evaluate import Evaluation, measure
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.evaluation.significance import paired_difference
from loca.experiments.comparison import Comparison, compare
from loca.experiments.report import write_tables
from loca.local.training import scaled_weights
from loca.models.recommender import Recommender, clone, fitted
from loca.persistence.atomic_write import write_whole

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
    """What the demonstration found: the comparison, the bound that knows the communities, and one user's answer.

    `purity` is the share of the users for whom the model finds the right community.
    """

    comparison: Comparison
    bound: Evaluation
    purity: float
    user: str
    answer: str
    explanation: str
    next_commands: tuple[tuple[str, str], ...]

    def verdicts(self) -> list[str]:
        """What locality earned, in one line for each control that was compared, whatever the figures say."""
        values = {
            one.name: one.evaluation.values[self.comparison.metric]
            for one in self.comparison.measured
        }
        lines, label = [], Metric.label_of(self.comparison.metric)
        for pair in (one for one in PAIRS if values.keys() >= set(one)):
            paired = paired_difference(*(values[name] for name in pair), seed=self.bound.seed)
            judged = (
                "above zero"
                if paired.low > 0
                else "below zero"
                if paired.high < 0
                else "zero lies within"
            )
            lines.append(
                f"{' minus '.join(pair)}: {paired.mean:+.4f} {label} ({paired.relative:+.1%}), "
                f"paired 95 % interval {paired.low:+.4f} … {paired.high:+.4f}: {judged}"
            )
        return lines

    def bound_line(self) -> str:
        """The upper bound beside what was reached, and the share of the gain that is."""
        metric = self.comparison.metric
        base, ours = (
            self.comparison.of(name).evaluation.means()[metric] for name in ("ease", "loca-ease")
        )
        best = self.bound.means()[metric]
        return (
            f"one EASE per true community, knowing who belongs where, reaches {best:.4f} ({best / base - 1:+.1%} over "
            f"ease); loca-ease, which has to find the communities, reaches {ours:.4f} ({ours / base - 1:+.1%})"
            + (f": {(ours - base) / (best - base):.0%} of that gain" if best > base else "")
        )

    def purity_line(self) -> str:
        """How many users are where they belong, by the communities that were found."""
        return f"purity {self.purity:.1%}: the share of users whose found community is mostly their own true community"

    def document(self) -> dict[str, Any]:
        """Everything found, as JSON values."""
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


def demo_models(seed: int, users: int) -> dict[str, list[Recommender]]:
    """The candidates of each model; all on EASE choose from the same l2.

    An ensemble is as large as its Loca may be. The communities of the dealt control have members drawn at random: two
    mixtures of as many as were planted.
    """
    anchors, networks = min(40, users), min(10, users)
    # Small and quick enough to train twenty of them while somebody waits.
    learning: dict[str, Any] = {
        "learning_rate": 5e-3,
        "epochs": 30,
        "patience": 4,
        "evaluate_every": 2,
    }
    vae = loca.MultVAE(latent=128, kl_weight=0.05, anneal_steps=300, **learning, seed=seed)
    eases: list[Recommender] = [loca.EASE(l2=l2) for l2 in L2_CHOICES]

    def local(base: Recommender, communities: Any, count: int) -> Recommender:
        return loca.Loca(
            base=base, anchors=count, communities=communities, mixtures=min(2, count), seed=seed
        )

    return {
        "popularity": [loca.Popularity()],
        "ease": eases,
        "mult-vae": [vae],
        "ensemble-ease": [loca.Ensemble(base=base, models=anchors, seed=seed) for base in eases],
        "ensemble-vae": [loca.Ensemble(base=vae, models=networks, seed=seed)],
        "loca-vae": [local(vae, "mixture", networks)],
        "dealt-ease": [local(base, "dealt", min(12, users)) for base in eases],
        "loca-ease": [local(base, "auto", anchors) for base in eases],
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
    """Compare on planted data, save, reload, recommend, explain and draw; everything is left in the folder.

    Parameters
    ----------
    folder : where tables, picture, model and next commands go
    seed, users : of the planted data; the seed is that of all models too
    recency : weighs histories wherever they are used to answer, in the saved model too; equal times have no order
    models : the candidates of each model by name, by default `demo_models`
    note : is called with one line as each of the five steps begins
    """
    # Limits hold for libraries that are loaded: those of LAPACK and k-means would come later, with all threads.
    import scipy.linalg  # noqa: F401
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # For matrices this small a second thread earns nothing, and on a busy machine waiting threads cost minutes.
    with ExitStack() as limits:
        limits.callback(torch.set_num_threads, torch.get_num_threads())
        limits.enter_context(threadpool_limits(limits=1))
        torch.set_num_threads(1)
        models = models or demo_models(seed, users)
        note(
            f"1/5  planting {users:,} users in 6 communities that group the same 300 items differently"
        )
        planted = loca.planted_communities(users=users, seed=seed)
        split = loca.leave_last_out(planted.interactions, test=5, validation=2).with_recency(
            recency
        )
        note("2/5  comparing models: chosen on validation, refitted, tested once")
        comparison = compare(models, split, keep=("loca-ease",), seed=seed)
        write_tables(
            comparison, folder
        )  # now, so that nothing that fails later costs the comparison
        note("3/5  the upper bound: one model per true community")
        bound = evaluate_true_communities(models["ease"], planted, split, seed=seed)
        note("4/5  saving the LOCA model, loading it again and asking it")
        model, histories, path = (
            comparison.models["loca-ease"],
            split.test.history_matrix,
            folder / "model",
        )
        model.save(path)
        loaded: Any = loca.load(path)
        if not np.array_equal(model.score(histories), loaded.score(histories)):
            raise LocaError(
                f"{path}: the loaded model does not score as the saved one did; please report this"
            )
        # The first tested user who belongs to two communities, so that the explanation shows both.
        shared = np.flatnonzero((planted.memberships > 0).sum(axis=1) > 1)
        user = str(split.test.histories.users.ids([int(shared[0]) if len(shared) else 0])[0])
        table = loca.recommendation_table(loaded, [user], 5).iter_rows(named=True)
        answer = "\n".join(f"{one['rank']}. {one['title']} ({one['item']})" for one in table)
        known: loca.Interactions = fitted(loaded.train_data_, loaded)
        explanation = str(loaded.explain(user, n=3))
        titles = ",".join(known.items.label(int(item)) for item in known.items_of(0)[-3:])
        note("5/5  drawing the communities")
        purity = draw_communities(
            loaded, planted.memberships.argmax(axis=1), folder / "communities.png"
        )
    found = Demonstration(
        comparison, bound, purity, user, answer, explanation, next_commands(folder, user, titles)
    )
    commands = (f"# {about}\n{command}\n" for command, about in found.next_commands)
    write_whole(
        folder / "NEXT.md", "\n".join(["# What to try next", "", "```sh", *commands, "```", ""])
    )
    document = json.dumps(found.document(), ensure_ascii=False, indent=1, allow_nan=False)
    write_whole(folder / "demo.json", document + "\n")
    write_whole(folder / "explanation.txt", f"For {found.user}\n{found.explanation}\n")
    return found


def next_commands(folder: Path, user: str, titles: str) -> tuple[tuple[str, str], ...]:
    """Commands to try after the demonstration, each with a word on what it does."""
    model, own, history = map(shlex.quote, (str(folder / "model"), str(folder / "mine"), titles))
    smaller = "--models ease,ensemble,loca-ease --seed 1 --set planted.users=1000 --set loca-ease.anchors=20"
    fit = f"loca fit planted --model loca-ease --choose base.l2=100,300 --out {own}"
    return (
        (f"loca recommend {model} --user {user} -n 5", "a known user's list"),
        (f"loca recommend {model} --history {history}", "anybody's list, from a few titles"),
        (f"loca explain {model} --user {user}", "what a list is made of"),
        (
            "loca data describe planted",
            "the built-in data in numbers, and how far its order can be trusted",
        ),
        (f"loca compare planted {smaller}", "another draw of the data, smaller"),
        (fit, "a model of your own; put the path of your ratings in place of planted"),
        ("loca doctor", "what this machine has"),
    )


def evaluate_true_communities(
    candidates: Sequence[Recommender],
    planted: PlantedData,
    split: loca.Split,
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Evaluation:
    """What a model would reach that knows who belongs where, under the clean protocol.

    The base is chosen from `candidates` on validation, refitted on train + validation, and measured on test once.
    No model that has to find the communities itself is expected to do better.
    """
    if split.validation is None or not candidates:
        raise ConfigError(
            "the upper bound needs candidates, and a validation part to choose one on"
        )
    if len(planted.memberships) != planted.interactions.n_users:
        raise DataError("planted data: expected the memberships of every user")

    def shares_of(interactions: loca.Interactions) -> npt.NDArray[np.float32]:
        """The true shares of these users in the communities, users × communities."""
        rows = planted.interactions.users.rows(interactions.users.values.tolist())
        return np.asarray(planted.memberships[rows], dtype=np.float32)

    def evaluate_with(
        base: Recommender, train: loca.Interactions, held_out: loca.HeldOut, n: Iterable[int]
    ) -> Evaluation:
        """One model per community, fitted with the true shares as weights, and answering with them."""
        blended, shares = np.zeros((), dtype=np.float32), shares_of(held_out.histories)
        for community, weights in enumerate(shares_of(train).T):
            model = clone(base).fit(train, user_weights=scaled_weights(weights, train.n_users))
            blended = blended + shares[:, [community]] * model.score(held_out.history_matrix)
        return measure(lambda user_rows: blended[user_rows], held_out, at=n, seed=seed)

    validated = [
        evaluate_with(base, split.train, split.validation, (DEFAULT_METRIC.k,)).means()[
            str(DEFAULT_METRIC)
        ]
        for base in candidates
    ]
    return evaluate_with(
        candidates[int(np.argmax(validated))], split.train_and_validation, split.test, at
    )


def draw_communities(model: loca.Loca, true: npt.NDArray[np.int64], path: Path) -> float:
    """Write a PNG of the users that the model knows, by true and by found community; give the purity.

    On the right all users of a found community wear the colour of the true community that most of them have, so that
    the two halves are alike where the communities were found; users whom no community answers for are grey.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    embeddings = model.embed(fitted(model.train_data_, model).histories())
    matched = match_communities(strongest_communities(model, embeddings), true)
    purity = float((matched == true).mean())
    drawn = np.linspace(0, len(true) - 1, min(len(true), _MOST_USERS)).astype(np.int64)
    # Two dimensions, near where the embeddings are near.
    layout = TSNE(
        2, perplexity=min(50.0, (len(drawn) - 1) / 3), init="pca", random_state=0, max_iter=500
    )
    places = np.asarray(layout.fit_transform(embeddings[drawn]), dtype=np.float32)
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    chance = np.bincount(true).max() / len(true)
    found = (
        f"Found by the model: purity {purity:.0%}, the share who are right (by chance {chance:.0%})"
    )
    halves = {"The truth: to which community each user belongs most": true, found: matched}
    for axes, (title, labels) in zip(figure.subplots(1, 2), halves.items(), strict=True):
        for one in np.unique(labels):
            colour = _UNCOVERED if one < 0 else _COLOURS[one % len(_COLOURS)]
            label = "nobody answers" if one < 0 else f"community {one + 1}"
            at = places[labels[drawn] == one]
            axes.scatter(*at.T, s=11, color=colour, alpha=0.75, linewidths=0, label=label)
        axes.set_title(title, fontsize=11)
        axes.set(xticks=[], yticks=[])
    legend = figure.axes[-1].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=7, markerscale=1.5, frameon=False)
    figure.suptitle(
        f"{len(drawn):,} users, a dot each; those whom the model takes to be alike lie near one another"
    )
    write_whole(path, as_png(figure, dpi=110))
    return purity


def strongest_communities(model: loca.Loca, embeddings: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The community to which each user belongs most; −1 where there is none."""
    memberships = fitted(model.communities_, model).memberships(embeddings)
    return np.where(
        np.diff(memberships.indptr) > 0, np.asarray(memberships.argmax(axis=1)).ravel(), -1
    )


def match_communities(
    found: npt.NDArray[np.int64], true: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each user the true community that most users of the found community have; −1 for who was not found.

    The purity is the share of users who have it themselves.
    """
    together = np.zeros(
        (found.max() + 2, true.max() + 1), dtype=np.int64
    )  # the last row is that of −1
    np.add.at(together, (found, true), 1)
    return np.where(found < 0, -1, together.argmax(axis=1)[found])


def as_png(figure: Any, dpi: float | str = "figure") -> bytes:
    """A picture as PNG, without anything that changes from one run to the next."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    return drawn.getvalue()
