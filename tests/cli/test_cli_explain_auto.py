"""`loca explain` on a saved search: the blend that it found, or the model that was chosen for it, explains itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_calls import TINY, Call

from loca.cli.main import main
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.synthetic import PlantedData
from loca.evaluation.recommend import recommend
from loca.local import auto as automatic
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.combiner import FixedShare
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.registry import load


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small search, fitted and saved by the command; its networks learn for as long as a test may last."""
    folder = tmp_path_factory.mktemp("searches") / "auto.loca"
    small = ["--model", "auto", "--set", "trials=4", "--no-refit"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(automatic, "plan_networks", lambda *_: automatic.NetworkPlan(2, 2, 8))
        assert main(["fit", "planted", "--out", str(folder), "--quiet", *TINY, *small]) == 0
    return folder


def test_a_search_explains_what_each_part_of_its_blend_adds(searched: Path, call: Call) -> None:
    done = call("explain", searched, "--user", "u003", "--user", "u007", "-n", "4", "--json")
    assert (done.code, done.err) == (0, "")
    answers = json.loads(done.out)["answers"]
    model = load(searched)
    assert isinstance(model, Auto)
    assert isinstance(model.model_, Blend)
    ids, scores = recommend(model, ["u003", "u007"], n=4)
    used = {model.model_.part_names()[part] for part, _, _ in model.model_.columns_ or ()}
    for answer, listed, reached in zip(answers, ids, scores, strict=True):
        assert [one["item"] for one in answer["items"]] == listed.tolist()
        assert {part["part"] for part in answer["parts"]} == used
        assert sum(part["weight"] for part in answer["parts"]) == pytest.approx(1)
        for place in range(4):
            adds = [part["adds"][place] for part in answer["parts"]]
            assert {one["item"] for one in adds} == {listed[place]}
            assert sum(one["contribution"] for one in adds) == pytest.approx(
                reached[place], abs=1e-4
            )


def test_the_text_of_a_search_names_items_by_their_titles(searched: Path, call: Call) -> None:
    (answer,) = json.loads(
        call("explain", searched, "--history", "i03,i08,i20", "-n", "2", "--json").out
    )["answers"]
    titles = [one["title"] for one in answer["items"]]
    lines = call("explain", searched, "--history", "i03,i08,i20", "-n", "2").out.splitlines()
    assert lines[0] == "For history"
    assert [line for line in lines if line[:6] in ("   1. ", "   2. ")] == [
        f"   1. {titles[0]}",
        f"   2. {titles[1]}",
    ]
    assert max(map(len, lines)) <= 100
    heaviest = answer["parts"][0]
    assert lines[lines.index("Answered by") + 1].endswith(f" % {heaviest['part']}")


def test_a_chosen_loca_is_explained_by_its_communities(
    planted: PlantedData, tmp_path: Path, call: Call
) -> None:
    chosen = Loca(
        base=EASE(),
        communities=Kernels(n=3, answer_bandwidth=Quantile(0.9)),
        combiner=FixedShare(0.2),
    )
    Auto(chosen=chosen).fit(planted.interactions).save(tmp_path / "m")
    (answer,) = json.loads(call("explain", tmp_path / "m", "--user", "u003", "--json").out)[
        "answers"
    ]
    assert answer["communities"]
    assert {one["anchor"] for one in answer["communities"]} <= set(
        planted.interactions.users.values
    )
    shares = [one["weight"] for one in answer["communities"]]
    assert sum(shares) + answer["global"]["weight"] == pytest.approx(1)


def test_a_chosen_model_is_explained_as_it_would_be_by_itself(
    planted: PlantedData, tmp_path: Path, call: Call
) -> None:
    Auto(chosen=EASE(), decay=None).fit(planted.interactions).save(tmp_path / "auto")
    EASE().fit(planted.interactions).save(tmp_path / "ease")
    first, second = (
        call("explain", tmp_path / name, "--user", "u003").out for name in ("auto", "ease")
    )
    assert "because you took" in first
    assert first == second
