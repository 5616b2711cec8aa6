"""The upper bound knows the truth, the demonstration tells it, and the picture shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loca
import loca.paper.demo as demo
from loca.communities.best_of import BestOf
from loca.communities.finder import CommunityFinder
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.data.recency import Recency
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError, DataError, LocaError
from loca.evaluation.evaluate import evaluate
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender
from loca.paper.demo import (
    draw_communities,
    evaluate_true_communities,
    match_communities,
    strongest_communities,
)
from loca.paper.permuted import Permuted
from loca.registry import load
from loca.typing import IntArray


def test_knowing_the_true_communities_beats_one_model_for_all() -> None:
    planted = planted_communities(
        users=800, items=60, communities=3, groups=6, tastes=1.0, overlap=0.0, seed=3
    )
    split = leave_last_out(planted.interactions, test=3, validation=2)
    bound = evaluate_true_communities([EASE(l2=30.0), EASE(l2=100.0)], planted, split, at=(10,))
    ease = evaluate(EASE(l2=30.0).fit(split.train_and_validation), split.test, at=(10,))
    assert bound.means()["ndcg@10"] > ease.means()["ndcg@10"] * 1.02


def test_with_a_single_community_the_bound_is_the_model_itself(
    planted: PlantedData, planted_split: Split
) -> None:
    alone = replace(planted, memberships=np.ones((400, 1)))
    bound = evaluate_true_communities([EASE(l2=30.0)], alone, planted_split, at=(10,))
    itself = evaluate(
        EASE(l2=30.0).fit(planted_split.train_and_validation), planted_split.test, at=(10,)
    )
    assert np.allclose(bound.values["ndcg@10"], itself.values["ndcg@10"])


def test_the_bound_is_chosen_on_validation(planted: PlantedData, planted_split: Split) -> None:
    poor, good = EASE(l2=1e-3), EASE(l2=30.0)
    both = evaluate_true_communities([poor, good], planted, planted_split, at=(10,))
    alone = evaluate_true_communities([good], planted, planted_split, at=(10,))
    assert np.array_equal(both.values["ndcg@10"], alone.values["ndcg@10"])


def test_the_bound_needs_candidates_validation_and_all_memberships(
    planted: PlantedData, planted_split: Split
) -> None:
    with pytest.raises(ConfigError, match="needs candidates"):
        evaluate_true_communities([], planted, planted_split)
    with pytest.raises(ConfigError, match="a validation part"):
        evaluate_true_communities([EASE()], planted, replace(planted_split, validation=None))
    with pytest.raises(DataError, match="memberships of every user"):
        evaluate_true_communities(
            [EASE()], replace(planted, memberships=np.ones((3, 1))), planted_split
        )


def found_by(model: Loca, planted: PlantedData) -> IntArray:
    """The community of each user that a fitted model found."""
    assert model.local_ is not None
    positions = model.local_.communities.locate(planted.interactions.histories())
    return strongest_communities(model, positions)


@pytest.mark.parametrize(
    ("finder", "covers_all"),
    [(Kernels(n=5, answer_bandwidth=Quantile(0.01)), False), (Mixtures(n=6), True)],
    ids=["kernels", "mixtures"],
)
def test_the_picture_is_a_png_and_comes_with_its_purity(
    planted: PlantedData, tmp_path: Path, finder: CommunityFinder, covers_all: bool
) -> None:
    model = Loca(base=EASE(), communities=finder).fit(planted.interactions)
    path, true = tmp_path / "deep" / "communities.png", planted.memberships.argmax(axis=1)
    purity = draw_communities(model, true, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 20_000
    found = found_by(model, planted)
    assert purity == np.mean(match_communities(found, true) == true)
    is_member = np.diff(model.answer_weights(planted.interactions.histories()).indptr) > 0
    assert np.array_equal(found >= 0, is_member)
    assert is_member.all() == covers_all
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"x\.png: cannot be written"):
        draw_communities(model, true, tmp_path / "file" / "x.png")


def test_communities_that_are_plain_to_see_are_found() -> None:
    planted = planted_communities(
        users=300, items=60, communities=3, overlap=0.0, favour=100.0, stray=0.0, seed=1
    )
    model = Loca(base=EASE(), communities=Mixtures(n=6)).fit(planted.interactions)
    true = planted.memberships.argmax(axis=1)
    assert np.mean(match_communities(found_by(model, planted), true) == true) > 0.9


def test_found_communities_are_matched_to_the_true_one_of_most_of_their_users() -> None:
    true = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    assert match_communities(np.array([4, 4, 4, 0, 0, 2, 2, 2]), true).tolist() == [
        0,
        0,
        0,
        1,
        1,
        2,
        2,
        2,
    ]
    # Two found communities may be parts of one true community; nobody else is matched to the uncovered.
    assert match_communities(np.array([1, 1, 0, 0, 0, -1, -1, -1]), true).tolist() == [
        0,
        0,
        1,
        1,
        1,
        -1,
        -1,
        -1,
    ]


def test_all_models_on_ease_choose_from_the_same_l2_and_ensembles_are_as_large() -> None:
    models: dict[str, Any] = demo.demo_models(seed=4, users=4000)
    for name in ("ensemble-ease", "dealt-ease", "loca-ease"):
        assert [one.base.l2 for one in models[name]] == [one.l2 for one in models["ease"]]
    assert {one.communities for one in models["loca-ease"]} == {BestOf(n=40)}
    assert {one.communities for one in models["dealt-ease"]} == {Permuted(finder=Mixtures(n=12))}
    assert {one.models for one in models["ensemble-ease"]} == {40}
    assert models["ensemble-vae"][0].models == models["loca-vae"][0].size
    assert models["loca-vae"][0].base.seed == 4
    few: dict[str, Any] = demo.demo_models(seed=0, users=1)
    sizes = {few[name][0].size for name in ("ensemble-ease", "loca-ease", "loca-vae", "dealt-ease")}
    assert sizes == {1}


WIDE = Kernels(n=3, train_bandwidth=Quantile(0.9), answer_bandwidth=Quantile(0.5))


def small_models(seed: int = 0, finder: CommunityFinder = WIDE) -> dict[str, list[Recommender]]:
    """The models of the demonstration, few and small; loca-ease has the communities of the finder."""
    vae, ease = MultVAE(latent=4, epochs=2, seed=seed), EASE(l2=30.0)
    permuted = Permuted(finder=Mixtures(n=3, mixtures=1))
    return {
        "popularity": [Popularity()],
        "ease": [ease, EASE(l2=100.0)],
        "mult-vae": [vae],
        "ensemble-ease": [Ensemble(base=ease, models=3)],
        "ensemble-vae": [Ensemble(base=vae, models=2)],
        "loca-vae": [Loca(base=vae, communities=Kernels(n=2))],
        "dealt-ease": [Loca(base=ease, communities=permuted)],
        "loca-ease": [Loca(base=ease, communities=finder)],
    }


@pytest.mark.parametrize("finder", [WIDE, BestOf(n=3)], ids=["kernels", "the best"])
def test_the_demonstration_leaves_tables_picture_model_and_commands(
    tmp_path: Path, finder: CommunityFinder
) -> None:
    notes: list[str] = []
    models = small_models(2, finder)
    found = demo.run_demo(tmp_path / "demo", seed=2, users=150, models=models, note=notes.append)
    names = {one.name for one in (tmp_path / "demo").iterdir()}
    assert names == {
        "comparison.txt", "comparison.md", "comparison.csv", "comparison.json",
        "differences.csv", "communities.png", "model", "NEXT.md", "demo.json", "explanation.txt",
    }  # fmt: skip
    assert [line[:3] for line in notes] == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    lines = found.verdicts()
    assert [line.partition(":")[0] for line in lines] == [
        " minus ".join(pair) for pair in demo.PAIRS
    ]
    assert all("paired 95 % interval" in line for line in lines)
    shared = found.comparison.difference(
        "loca-ease", "ease"
    ).paired  # the same figure as in the tables
    assert f"{shared.low:+.4f} … {shared.high:+.4f}" in lines[0]
    assert "knowing who belongs where" in found.bound_line()
    assert f"purity {found.purity:.1%}" in found.purity_line()
    document = json.loads((tmp_path / "demo" / "demo.json").read_text())
    assert [one["name"] for one in document["comparison"]["models"]] == list(small_models())
    assert document["purity"] == found.purity > 0
    assert len(found.answer.splitlines()) == 5
    assert str(tmp_path / "demo" / "model") in (tmp_path / "demo" / "NEXT.md").read_text()
    known = load(tmp_path / "demo" / "model").train_data_
    assert known is not None
    newest = known.items_of(known.users.row(found.user))[::-1].tolist()
    assert newest not in (sorted(newest), sorted(newest, reverse=True))
    titles = ", ".join(known.items.label(row) for row in newest[:5])
    opening = (
        f"History of {len(newest)} items, newest first: {titles}, and {len(newest) - 5} more 1. "
    )
    assert " ".join(found.explanation.split()).startswith(opening)


def test_the_bound_line_says_the_share_of_the_gain(
    planted: PlantedData, planted_split: Split
) -> None:
    models = {"ease": [EASE(l2=30.0)], "loca-ease": [EASE(l2=100.0)]}
    comparison = loca.compare(models, planted_split)
    base, ours = (comparison.of(name).evaluation.means()["ndcg@100"] for name in models)
    bound = comparison.of("loca-ease").evaluation
    found = demo.Demonstration(comparison, bound, 0.5, "u", "", "", ())
    assert ours > base
    assert found.bound_line().endswith("100% of that gain")
    assert "of that gain" not in replace(found, bound=comparison.of("ease").evaluation).bound_line()


def test_the_comparison_is_written_before_anything_that_may_fail_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise DataError("out of luck")

    monkeypatch.setattr(demo, "evaluate_true_communities", fail)
    with pytest.raises(DataError, match="out of luck"):
        demo.run_demo(tmp_path / "demo", users=150, models=small_models())
    assert json.loads((tmp_path / "demo" / "comparison.json").read_text())["control"]


def test_recency_reaches_every_model_of_the_demonstration_and_the_saved_one(tmp_path: Path) -> None:
    plain = demo.run_demo(tmp_path / "plain", users=150, models=small_models())
    weighed = demo.run_demo(
        tmp_path / "weighed", users=150, recency=Recency(1.0), models=small_models()
    )
    for name in ("ease", "loca-ease"):
        means = [one.comparison.of(name).evaluation.means()["ndcg@100"] for one in (plain, weighed)]
        assert means[0] != means[1]
    assert plain.bound.means() != weighed.bound.means()
    known = load(tmp_path / "weighed" / "model").train_data_
    assert known is not None
    assert known.recency == Recency(1.0)


def test_a_model_that_comes_back_changed_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = planted_communities(users=150, seed=0).interactions
    monkeypatch.setattr(loca, "load", lambda folder: EASE(l2=1.0).fit(other))
    with pytest.raises(LocaError, match="does not score as the saved one did"):
        demo.run_demo(tmp_path / "demo", users=150, models=small_models())
