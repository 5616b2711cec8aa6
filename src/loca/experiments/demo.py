"""The demonstration: planted data, an honest comparison, a saved model that answers and explains, and a picture."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split, leave_last_out
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError, DataError, LocaError
from loca.evaluation.evaluate import Evaluation, measure, summarise
from loca.evaluation.recommend import recommendation_table
from loca.experiments.comparison import Comparison, Difference, compare
from loca.experiments.report import write_tables, write_texts
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.training import scaled_weights
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender, Scores, clone, fitted
from loca.persistence.atomic_write import write_whole
from loca.registry import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Labels = npt.NDArray[np.int64]
Places = npt.NDArray[np.float32]

# Told apart by colour-blind readers too (Paul Tol's bright scheme).
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_UNCOVERED = "#dddddd"
_MOST_USERS = 1500


def draw_communities(model: Loca, community_of: Labels, path: Path) -> None:
    """Writes a PNG of the users that the model knows: by their true community, and by the anchor that answers most.

    On the right an anchor's users wear the colour of the anchor's own true community, so that the two halves are
    alike where the communities were found; users that no anchor answers for are grey.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    communities = fitted(model.communities_, model)
    drawn = choose_users(len(community_of), communities.anchors)
    embeddings = model.embed(fitted(model.train_data_, model).histories(drawn))
    answering = communities.answer_weights(embeddings).toarray()  # (users, communities)
    found = np.where(answering.any(axis=1), community_of[communities.anchors][answering.argmax(axis=1)], -1)
    places = lay_out(embeddings)
    anchor_places = places[np.searchsorted(drawn, communities.anchors)]
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        _mark_anchors(axes, anchor_places, community_of[communities.anchors])
    _draw_users(left, places, community_of[drawn], "by true community")
    _draw_users(right, places, found, f"by the anchor that answers ({communities.coverage:.0%} of users covered)")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=7, markerscale=1.5, frameon=False
    )
    figure.suptitle(f"{len(drawn):,} users and {len(communities)} anchors, laid out by what they have in common")
    write_whole(path, as_png(figure, dpi=110))


def choose_users(user_count: int, anchors: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The user rows to draw, rising: all anchors, and others evenly up to a number that the eye and t-SNE can take."""
    others = np.linspace(0, user_count - 1, min(user_count, _MOST_USERS)).astype(np.int64)
    return np.union1d(others, anchors)


def lay_out(embeddings: npt.NDArray[Any]) -> Places:
    """Two dimensions for each embedding, near where the embeddings are near (t-SNE with a fixed seed)."""
    from sklearn.manifold import TSNE

    if len(embeddings) < 4:
        return np.zeros((len(embeddings), 2), dtype=np.float32)
    perplexity = min(50.0, (len(embeddings) - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, metric="cosine", init="pca", random_state=0, max_iter=500)
    return np.asarray(layout.fit_transform(embeddings), dtype=np.float32)


def _draw_users(axes: Axes, places: Places, community_of: Labels, title: str) -> None:
    for community in np.unique(community_of):
        members = community_of == community
        colour = _UNCOVERED if community < 0 else _COLOURS[community % len(_COLOURS)]
        label = "nobody answers" if community < 0 else f"community {community + 1}"
        axes.scatter(places[members, 0], places[members, 1], s=9, color=colour, alpha=0.75, linewidths=0, label=label)
    axes.set_title(title, fontsize=11)
    axes.set_xticks([])
    axes.set_yticks([])


def _mark_anchors(axes: Axes, places: Places, community_of: Labels) -> None:
    colours = [_COLOURS[community % len(_COLOURS)] for community in community_of]
    axes.scatter(
        places[:, 0],
        places[:, 1],
        s=130,
        marker="*",
        c=colours,
        edgecolors="black",
        linewidths=1.0,
        zorder=3,
        label="anchor",
    )


def as_png(figure: Any, dpi: float | str = "figure") -> bytes:
    """A picture as PNG, without anything that changes from one run to the next."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    return drawn.getvalue()


L2_CHOICES = (30.0, 100.0, 300.0)
BANDWIDTH_CHOICES = (
    (Quantile(0.5), Quantile(0.1)),
    (Quantile(0.9), Quantile(0.2)),
    (Quantile(0.9, times=1.3), Quantile(0.5)),
)
LOCAL_EASE_MODELS = 40
LOCAL_VAE_MODELS = 10

Note = Callable[[str], None]
UserRows = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]


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
        pairs = (
            ("loca-ease", "ease"),
            ("loca-ease", "ensemble-ease"),
            ("loca-vae", "mult-vae"),
            ("loca-vae", "ensemble-vae"),
        )
        return [_verdict(self.comparison.difference(*pair)) for pair in pairs]

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
    anchors, vae_anchors = min(LOCAL_EASE_MODELS, users), min(LOCAL_VAE_MODELS, users)
    return {
        "popularity": [Popularity()],
        "ease": [EASE(l2=l2) for l2 in L2_CHOICES],
        "mult-vae": [_vae(seed)],
        "ensemble-ease": [Ensemble(base=EASE(l2=l2), models=anchors, seed=seed) for l2 in L2_CHOICES],
        "ensemble-vae": [Ensemble(base=_vae(seed), models=vae_anchors, seed=seed)],
        "loca-vae": [Loca(base=_vae(seed), anchors=vae_anchors, seed=seed)],
        "loca-ease": [
            Loca(
                base=EASE(l2=l2),
                anchors=anchors,
                train_bandwidth=train,
                answer_bandwidth=answer,
                embedding=TruncatedSVD(dimensions=16, seed=seed),
                seed=seed,
            )
            for l2 in L2_CHOICES
            for train, answer in BANDWIDTH_CHOICES
        ],
    }


def _vae(seed: int) -> MultVAE:
    """A MultVAE small and quick enough to train twenty of them while somebody waits."""
    return MultVAE(
        latent=128,
        kl_weight=0.05,
        anneal_steps=300,
        learning_rate=5e-3,
        epochs=30,
        patience=4,
        evaluate_every=2,
        seed=seed,
    )


def run_demo(
    folder: Path,
    *,
    seed: int = 0,
    users: int = 4000,
    recency: Recency | None = None,
    note: Note = lambda line: None,
) -> Demonstration:
    """Compares on planted data, saves, reloads, recommends, explains and draws; everything is left in the folder.

    Histories are weighed by `recency` wherever they are used to answer, in the saved model too. Equal times have no
    order: items of one moment are one place.
    """
    with _on_one_thread():
        return _run(folder, seed, users, recency, note)


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Holds numpy, scipy and torch to one thread each.

    For matrices this small a second thread earns nothing, and on a busy machine waiting threads cost minutes.
    """
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


def _run(folder: Path, seed: int, users: int, recency: Recency | None, note: Note) -> Demonstration:
    note(f"1/5  planting {users:,} users in 6 communities that group the same 300 items differently")
    planted = planted_communities(users=users, seed=seed)
    split = leave_last_out(planted.interactions, test=5, validation=2).with_recency(recency)
    note("2/5  comparing models: chosen on validation, refitted, tested once")
    comparison = compare(demo_models(seed, users), split, keep=("loca-ease",), seed=seed)
    write_tables(comparison, folder)  # now, so that nothing that fails later costs the comparison
    note("3/5  the upper bound: one model per true community")
    bound = evaluate_true_communities([EASE(l2=l2) for l2 in L2_CHOICES], planted, split, seed=seed)
    note("4/5  saving the LOCA model, loading it again and asking it")
    model = _saved_and_loaded(comparison.models["loca-ease"], folder / "model", split)
    user = _typical_user(planted, split)
    answer, explanation = _answer(model, user)
    note("5/5  drawing the communities")
    draw_communities(model, planted.memberships.argmax(axis=1), folder / "communities.png")
    commands = next_commands(folder, user, _last_titles(model))
    found = Demonstration(comparison, bound, user, answer, explanation, commands)
    _write(found, folder)
    return found


def _saved_and_loaded(model: Recommender, folder: Path, split: Split) -> Loca:
    """The model as it comes back from its folder; one that scores otherwise than before is an error."""
    model.save(folder)
    loaded = load(folder)
    histories = split.test.history_matrix
    if not isinstance(loaded, Loca) or not np.array_equal(model.score(histories), loaded.score(histories)):
        raise LocaError(f"{folder}: the loaded model does not score as the saved one did; please report this")
    return loaded


def _typical_user(planted: PlantedData, split: Split) -> str:
    """The id of the first tested user who belongs to two communities, so that the explanation shows both."""
    shared = np.flatnonzero((planted.memberships > 0).sum(axis=1) > 1)
    row = int(shared[0]) if len(shared) else 0
    return str(split.test.histories.users.ids([row])[0])


def _answer(model: Loca, user: str) -> tuple[str, str]:
    known = fitted(model.train_data_, model)
    table = recommendation_table(model, [user], 5)
    lines = [f"{row['rank']}. {row['title']} ({row['item']})" for row in table.iter_rows(named=True)]
    row = known.users.row(user)
    return "\n".join(lines), str(model.explain(known.histories(np.array([row])), 3, order=known.items_of(row)))


def _verdict(one: Difference) -> str:
    paired = one.paired
    judged = "above zero" if paired.low > 0 else "below zero" if paired.high < 0 else "zero lies within"
    return (
        f"{one.first} minus {one.second}: {paired.mean:+.4f} NDCG@100 ({paired.relative:+.1%}), "
        f"paired 95 % interval {paired.low:+.4f} … {paired.high:+.4f}: {judged}"
    )


def next_commands(folder: Path, user: str, titles: list[str]) -> tuple[tuple[str, str], ...]:
    """Commands to try after the demonstration, each with a word on what it does."""
    model = shlex.quote(str(folder / "model"))
    history = shlex.quote(",".join(titles))
    return (
        (f"loca recommend {model} --user {user} -n 5", "a known user's list"),
        (f"loca recommend {model} --history {history}", "anybody's list, from a few titles"),
        (f"loca explain {model} --user {user}", "the communities behind a list"),
        ("loca data describe planted", "the built-in data in numbers, and how far its order can be trusted"),
        (
            "loca compare planted --models ease,ensemble,loca-ease --seed 1 --set planted.users=1000 "
            "--set loca-ease.anchors=20",
            "another draw of the data, smaller",
        ),
        (
            f"loca fit planted --model loca-ease --choose base.l2=100,300 --out {shlex.quote(str(folder / 'mine'))}",
            "a model of your own; put the path of your ratings in place of planted",
        ),
        ("loca doctor", "what this machine has"),
    )


def _last_titles(model: Loca) -> list[str]:
    known = fitted(model.train_data_, model)
    return [known.items.label(int(row)) for row in known.items_of(0)[-3:]]


def _write(found: Demonstration, folder: Path) -> None:
    commands = (f"# {about}\n{command}\n" for command, about in found.next_commands)
    write_texts(
        folder,
        {
            "NEXT.md": "\n".join(["# What to try next", "", "```sh", *commands, "```", ""]),
            "demo.json": json.dumps(found.document(), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
            "explanation.txt": f"For {found.user}\n{found.explanation}\n",
        },
    )


def evaluate_true_communities(
    candidates: Sequence[Recommender],
    planted: PlantedData,
    split: Split,
    *,
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Evaluation:
    """What a model would reach that knows who belongs where, under the clean protocol.

    The base is chosen from `candidates` on validation, refitted on train + validation, and measured on test once.
    No model that has to find the communities itself is expected to do better.
    """
    if split.validation is None or not candidates:
        raise ConfigError("the upper bound needs candidates, and a validation part to choose one on")
    scores = [_validate(base, planted, split.train, split.validation) for base in candidates]
    best = candidates[int(np.argmax(scores))]
    answer = _answers(best, planted, split.train_and_validation, split.test)
    return summarise(measure(answer, split.test, at=at), split.test, seed=seed)


def _validate(base: Recommender, planted: PlantedData, train: Interactions, questions: HeldOut) -> float:
    measured = measure(_answers(base, planted, train, questions), questions, at=(100,))
    return float(measured.values["ndcg@100"].mean())


def _answers(
    base: Recommender, planted: PlantedData, train: Interactions, questions: HeldOut
) -> Callable[[UserRows], Scores]:
    """Scores for user rows of `questions`, from one model per community fitted with the true shares as weights."""
    learners = _shares_of(planted, train)
    models = [
        clone(base).fit(train, user_weights=scaled_weights(shares.astype(np.float32), len(learners)))
        for shares in learners.T
    ]
    asked = _shares_of(planted, questions.histories).astype(np.float32)  # (users, communities)

    def score_users(user_rows: UserRows) -> Scores:
        histories = questions.history_matrix[user_rows]
        blended = np.zeros(histories.shape, dtype=np.float32)
        for community, model in enumerate(models):
            blended += asked[user_rows, community][:, None] * model.score(histories)
        return blended

    return score_users


def _shares_of(planted: PlantedData, interactions: Interactions) -> Shares:
    """The true shares of these users in the communities, users × communities."""
    if len(planted.memberships) != planted.interactions.n_users:
        raise DataError("planted data: expected the memberships of every user")
    rows = planted.interactions.users.rows(interactions.users.values.tolist())
    return np.asarray(planted.memberships[rows])
