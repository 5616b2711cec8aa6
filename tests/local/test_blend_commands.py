"""A saved blend answers and explains itself from the command line like any other model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loca.cli.main import main
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.evaluation.recommend import recommend
from loca.local.blend import Blend
from loca.local.loca import Loca
from loca.models.ease import EASE


@pytest.fixture(scope="module")
def blend(planted_split: Split) -> Blend:
    embedding = TruncatedSVD(dimensions=8)
    kernels = Kernels(n=3, embedding=embedding, answer_bandwidth=Quantile(0.9))
    local = Loca(base=EASE(), communities=kernels)
    columns = [(0, 1.0, 0.4), (1, 1.0, 0.6)]
    return Blend(parts=[EASE(), local], columns=columns).fit(
        planted_split.train.with_recency(Recency(5))
    )


@pytest.fixture
def folder(blend: Blend, tmp_path: Path) -> Path:
    blend.save(tmp_path / "blend.loca")
    return tmp_path / "blend.loca"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(one) for one in arguments]) == 0
    return capsys.readouterr().out


def test_recommend_lists_what_the_blend_lists(
    blend: Blend, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = json.loads(
        said(capsys, "recommend", folder, "--user", "u003", "-n", "4", "--json")
    )["answers"]
    ids, _ = recommend(blend, ["u003"], n=4)
    assert [one["item"] for one in answer["items"]] == ids[0].tolist()


def test_explain_says_what_each_part_adds(
    blend: Blend, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = json.loads(said(capsys, "explain", folder, "--user", "u003", "-n", "4", "--json"))[
        "answers"
    ]
    ids, scores = recommend(blend, ["u003"], n=4)
    assert [one["item"] for one in answer["items"]] == ids[0].tolist()
    local, linear = answer["parts"]
    assert (local["part"], local["weight"], linear["part"]) == ("Loca of EASE", 0.6, "EASE")
    assert len(local["inside"]["communities"]) >= 1
    assert "inside" not in linear
    for place in range(4):
        both = [part["adds"][place] for part in (local, linear)]
        assert both[0]["item"] == ids[0][place]
        assert sum(one["contribution"] for one in both) == pytest.approx(scores[0][place], abs=1e-4)
        assert sum(abs(one["share"]) for one in both) == pytest.approx(1)
        own = [one["item"] for one in local["items"]]
        if ids[0][place] in own:
            assert both[0]["rank"] == own.index(ids[0][place]) + 1


def test_explain_reads_as_one_line_of_parts_for_each_item(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "explain", folder, "--history", "i03,i08,i20", "-n", "2")
    lines = text.splitlines()
    assert lines[0] == "For history"
    notes = [line for line in lines if line.startswith("      by Loca of EASE (")]
    assert len(notes) == 2
    assert all(", place " in one and "EASE (" in one for one in notes)
    assert "   60 % Loca of EASE" in lines
    assert "communities" in text
