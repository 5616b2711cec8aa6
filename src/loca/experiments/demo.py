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
from loca.experiments.comparison import Comparison, compare
from loca.experiments.report import write_tables
from loca.local.training import scaled_weights
from loca.models.recommender import Recommender, clone, fitted
from loca.persistence.atomic_write import write_whole

L2_CHOICES = (30.0, 100.0, 300.0)
# The quantiles of the training and of the answering bandwidth, and what the former is multiplied by.
BANDWIDTH_CHOICES = ((0.5, 0.1, 1.0), (0.9, 0.2, 1.0), (0.9, 0.5, 1.3))
PAIRS = (("loca-ease", "ease"), ("loca-ease", "ensemble-ease"), ("loca-vae", "mult-vae"), ("loca-vae", "ensemble-vae"))
# Distinct for colour-blind readers too (Paul Tol's bright scheme).
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_UNCOVERED = "#dddddd"
_MOST_USERS = 1500


@dataclass(frozen=True, eq=False)
class Demonstration:
    """What the demonstration found: the comparison, the bound that knows the communities, and one user's answer."""

    comparison: Comparison
    bound: Evaluation
    user: str
    answer: str
    explanation: str
    next_commands: tuple[tuple[str, str], ...]

    def verdicts(self) -> list[str]:
        """What locality earned, in one line for each control, whatever the figures say."""
        lines = []
        for pair in PAIRS:
            paired = self.comparison.difference(*pair).paired
            judged = "above zero" if paired.low > 0 else "below zero" if paired.high < 0 else "zero lies within"
            lines.append(
                f"{' minus '.join(pair)}: {paired.mean:+.4f} NDCG@100 ({paired.relative:+.1%}), "
                f"paired 95 % interval {paired.low:+.4f} … {paired.high:+.4f}: {judged}"
            )
        return lines

    def bound_line(self) -> str:
        """The upper bound beside what was reached."""
        metric = self.comparison.metric
        base, ours = (self.comparison.of(name).evaluation.means()[metric] for name in ("ease", "loca-ease"))
        best = self.bound.means()[metric]
        return (
            f"one EASE per true community, knowing who belongs where, reaches {best:.4f} ({best / base - 1:+.1%} over "
            f"ease); loca-ease, which has to find the communities, reaches {ours:.4f} ({ours / base - 1:+.1%})"
        )

    def document(self) -> dict[str, Any]:
        """Everything found, as JSON values."""
        return {
            "verdicts": self.verdicts(),
            "bound": {"ndcg@100": self.bound.means()[self.comparison.metric], "what": self.bound_line()},
            "comparison": self.comparison.to_json(),
            "user": self.user,
            "recommended": self.answer.split("\n"),
            "next": [command for command, _ in self.next_commands],
        }


def demo_models(seed: int, users: int) -> dict[str, list[Recommender]]:
    """The candidates of each model; all on EASE choose from the same l2, an ensemble is as large as its Loca."""
    anchors, networks = min(40, users), min(10, users)
    # Small and quick enough to train twenty of them while somebody waits.
    learning: dict[str, Any] = {"learning_rate": 5e-3, "epochs": 30, "patience": 4, "evaluate_every": 2}
    vae = loca.MultVAE(latent=128, kl_weight=0.05, anneal_steps=300, **learning, seed=seed)
    embedding = loca.TruncatedSVD(dimensions=16, seed=seed)
    eases: list[Recommender] = [loca.EASE(l2=l2) for l2 in L2_CHOICES]
    local: list[Recommender] = []
    for base in eases:
        for train, answer, times in BANDWIDTH_CHOICES:
            wide, narrow = loca.Quantile(train, times=times), loca.Quantile(answer)
            own: dict[str, Any] = {"train_bandwidth": wide, "answer_bandwidth": narrow, "embedding": embedding}
            local.append(loca.Loca(base=base, anchors=anchors, **own, seed=seed))
    return {
        "popularity": [loca.Popularity()],
        "ease": eases,
        "mult-vae": [vae],
        "ensemble-ease": [loca.Ensemble(base=base, models=anchors, seed=seed) for base in eases],
        "ensemble-vae": [loca.Ensemble(base=vae, models=networks, seed=seed)],
        "loca-vae": [loca.Loca(base=vae, anchors=networks, seed=seed)],
        "loca-ease": local,
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
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # For matrices this small a second thread earns nothing, and on a busy machine waiting threads cost minutes.
    with ExitStack() as limits:
        limits.callback(torch.set_num_threads, torch.get_num_threads())
        limits.enter_context(threadpool_limits(limits=1))
        torch.set_num_threads(1)
        models = models or demo_models(seed, users)
        note(f"1/5  planting {users:,} users in 6 communities that group the same 300 items differently")
        planted = loca.planted_communities(users=users, seed=seed)
        split = loca.leave_last_out(planted.interactions, test=5, validation=2).with_recency(recency)
        note("2/5  comparing models: chosen on validation, refitted, tested once")
        comparison = compare(models, split, keep=("loca-ease",), seed=seed)
        write_tables(comparison, folder)  # now, so that nothing that fails later costs the comparison
        note("3/5  the upper bound: one model per true community")
        bound = evaluate_true_communities(models["ease"], planted, split, seed=seed)
        note("4/5  saving the LOCA model, loading it again and asking it")
        model, histories, path = comparison.models["loca-ease"], split.test.history_matrix, folder / "model"
        model.save(path)
        loaded: Any = loca.load(path)
        if not np.array_equal(model.score(histories), loaded.score(histories)):
            raise LocaError(f"{path}: the loaded model does not score as the saved one did; please report this")
        # The first tested user who belongs to two communities, so that the explanation shows both.
        shared = np.flatnonzero((planted.memberships > 0).sum(axis=1) > 1)
        user = str(split.test.histories.users.ids([int(shared[0]) if len(shared) else 0])[0])
        table = loca.recommendation_table(loaded, [user], 5).iter_rows(named=True)
        answer = "\n".join(f"{one['rank']}. {one['title']} ({one['item']})" for one in table)
        known: loca.Interactions = fitted(loaded.train_data_, loaded)
        explanation = str(loaded.explain(user, n=3))
        titles = ",".join(known.items.label(int(item)) for item in known.items_of(0)[-3:])
        note("5/5  drawing the communities")
        draw_communities(loaded, planted.memberships.argmax(axis=1), folder / "communities.png")
    found = Demonstration(comparison, bound, user, answer, explanation, next_commands(folder, user, titles))
    commands = (f"# {about}\n{command}\n" for command, about in found.next_commands)
    write_whole(folder / "NEXT.md", "\n".join(["# What to try next", "", "```sh", *commands, "```", ""]))
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
        ("loca data describe planted", "the built-in data in numbers, and how far its order can be trusted"),
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
        raise ConfigError("the upper bound needs candidates, and a validation part to choose one on")
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

    validated = [evaluate_with(base, split.train, split.validation, (100,)).means()["ndcg@100"] for base in candidates]
    return evaluate_with(candidates[int(np.argmax(validated))], split.train_and_validation, split.test, at)


def draw_communities(model: loca.Loca, community_of: npt.NDArray[np.int64], path: Path) -> None:
    """Write a PNG of the users that the model knows: by their true community, and by the anchor that answers most.

    On the right an anchor's users wear the colour of the anchor's own true community, so that the two halves are
    alike where the communities were found; users that no anchor answers for are grey.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    communities = fitted(model.communities_, model)
    anchors = communities.anchors
    drawn = choose_users(len(community_of), anchors)
    embeddings = model.embed(fitted(model.train_data_, model).histories(drawn))
    answering = communities.answer_weights(embeddings).toarray()  # (users, communities)
    found = np.where(answering.any(axis=1), community_of[anchors][answering.argmax(axis=1)], -1)
    # Two dimensions, near where the embeddings are near.
    perplexity = min(50.0, (len(embeddings) - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, metric="cosine", init="pca", random_state=0, max_iter=500)
    places = np.asarray(layout.fit_transform(embeddings), dtype=np.float32)
    stars = places[np.searchsorted(drawn, anchors)]
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    right = f"by the anchor that answers ({communities.coverage:.0%} of users covered)"
    halves = {"by true community": community_of[drawn], right: found}
    colours = [_COLOURS[one % len(_COLOURS)] for one in community_of[anchors]]
    star = {"s": 130, "marker": "*", "edgecolors": "black", "linewidths": 1.0, "zorder": 3}
    for axes, (title, labels) in zip(figure.subplots(1, 2), halves.items(), strict=True):
        axes.scatter(*stars.T, c=colours, label="anchor", **star)
        for one in np.unique(labels):
            colour = _UNCOVERED if one < 0 else _COLOURS[one % len(_COLOURS)]
            label = "nobody answers" if one < 0 else f"community {one + 1}"
            axes.scatter(*places[labels == one].T, s=9, color=colour, alpha=0.75, linewidths=0, label=label)
        axes.set_title(title, fontsize=11)
        axes.set(xticks=[], yticks=[])
    legend = figure.axes[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=7, markerscale=1.5, frameon=False)
    figure.suptitle(f"{len(drawn):,} users and {len(communities)} anchors, laid out by what they have in common")
    write_whole(path, as_png(figure, dpi=110))


def choose_users(user_count: int, anchors: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The user rows to draw, rising: all anchors, and others evenly up to a number that the eye and t-SNE can take."""
    others = np.linspace(0, user_count - 1, min(user_count, _MOST_USERS)).astype(np.int64)
    return np.union1d(others, anchors)


def as_png(figure: Any, dpi: float | str = "figure") -> bytes:
    """A picture as PNG, without anything that changes from one run to the next."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    return drawn.getvalue()
