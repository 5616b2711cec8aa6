"""The explorer: a map by planted communities, what is said of each, search, and a page in one file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError, DataError
from loca.evaluation.top_n import rank_top_n
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.paper.permuted import Permuted
from loca.serving.explorer import (
    describe_community,
    describe_user,
    export_page,
    history_counts,
    list_communities,
    map_users,
    model_facts,
    search,
)
from own_parts import KMeansGroups


def local_ease(communities: loca.CommunityFinder) -> Loca:
    return Loca(base=EASE(l2=20.0), communities=communities, combiner=loca.FixedShare(0.3))


# A model, the kind of its communities, and how many of them are shown.
MODELS: dict[str, tuple[Callable[[], loca.Recommender], str, int]] = {
    "ease": (lambda: EASE(l2=20.0), "none", 0),
    "popularity": (loca.Popularity, "none", 0),
    "network": (lambda: loca.MultVAE(latent=4, epochs=2), "none", 0),
    "ensemble": (lambda: loca.Ensemble(base=EASE(l2=20.0), models=3), "none", 0),
    "blend": (
        lambda: loca.Blend(
            parts=[EASE(l2=20.0), loca.Popularity()], columns=[(0, 1.0, 0.6), (1, 1.0, 0.4)]
        ),
        "none",
        0,
    ),
    "kernels": (lambda: local_ease(loca.Kernels(n=5)), "anchors", 5),
    "mixtures": (lambda: local_ease(loca.Mixtures(n=6)), "mixtures", 6),
    "permuted": (lambda: local_ease(Permuted(finder=loca.Mixtures(n=6))), "mixtures", 6),
    "random groups": (lambda: local_ease(loca.RandomGroups(n=6)), "none", 0),
    "own": (lambda: local_ease(KMeansGroups(n=4)), "members", 4),
}


@pytest.fixture(scope="module")
def data() -> PlantedData:
    """Three clear communities."""
    return planted_communities(
        users=300,
        items=60,
        communities=3,
        groups=6,
        tastes=6.0,
        overlap=0.1,
        favour=10.0,
        tail=0.3,
        history=20,
    )


@pytest.fixture(scope="module")
def mixture(data: PlantedData) -> Loca:
    model = Loca(
        base=EASE(l2=20.0),
        communities=loca.Mixtures(n=3, mixtures=1),
        combiner=loca.FixedShare(0.5),
    )
    return model.fit(data.interactions)


@pytest.fixture(scope="module")
def kernels(data: PlantedData) -> Loca:
    return Loca(base=EASE(l2=20.0), communities=loca.Kernels(n=4)).fit(data.interactions)


def named(titles: list[str], users: list[str]) -> Interactions:
    """One interaction each, with items i0, i1, … of these titles."""
    items = IdMap(
        np.array([f"i{row}" for row in range(len(titles))], object),
        "item",
        np.array(titles, object),
    )
    rows = np.arange(len(users))
    return Interactions.from_events(IdMap(np.array(users, object)), items, rows, rows % len(titles))


def parsed(sent: bytes) -> tuple[int, int, np.ndarray, np.ndarray, np.ndarray]:
    """The numbers of users and communities, places, rows and communities of a map as it is sent."""
    assert sent[:8] == b"LOCAMAP1"
    users, communities = np.frombuffer(sent, "<u4", 2, 8).tolist()
    places = np.frombuffer(sent, "<f4", 2 * users, 16).reshape(-1, 2)
    rows = np.frombuffer(sent, "<u4", users, 16 + 8 * users)
    assert len(sent) == 16 + 14 * users
    return users, communities, places, rows, np.frombuffer(sent, "<u2", users, 16 + 12 * users)


# -- The map -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mixture", "kernels", "ease"])
def test_users_of_one_planted_community_lie_nearer_to_one_another(
    kind: str, data: PlantedData, request: pytest.FixtureRequest
) -> None:
    model = (
        EASE(l2=20.0).fit(data.interactions) if kind == "ease" else request.getfixturevalue(kind)
    )
    users, truth = map_users(model), data.memberships.argmax(axis=1)
    apart = np.linalg.norm(users.points[:, None] - users.points, axis=2)
    same = truth[:, None] == truth
    assert apart[same].mean() < 0.6 * apart[~same].mean()
    if kind == "mixture":
        found = np.array(
            [np.bincount(truth[users.community == one], minlength=3) for one in range(3)]
        )
        assert found.max(axis=1).sum() > 0.9 * len(truth)
        nearest = np.linalg.norm(users.points[:, None] - users.centres, axis=2).argmin(axis=1)
        assert (nearest == users.community).mean() > 0.8


def test_a_map_that_is_sent_reads_back(kernels: Loca) -> None:
    users = map_users(kernels)
    shown = replace(users, community=np.where(users.rows < 5, -1, users.community).astype(np.int32))
    count, communities, places, rows, found = parsed(shown.to_bytes())
    assert (count, communities) == (300, 4)
    assert np.array_equal(places, shown.points)
    assert np.array_equal(rows, np.arange(300))
    assert (found[:5] == 65535).all()
    assert np.array_equal(found[5:], shown.community[5:])
    assert map_users(kernels).to_bytes() == users.to_bytes()


def test_of_many_users_some_are_shown_and_those_without_a_history_never() -> None:
    data = named(["a", "b", "c"], [f"u{number}" for number in range(40)])
    emptied = replace(
        data, offsets=np.append(np.maximum(np.arange(40) - 1, 0), 39), item_rows=data.item_rows[:39]
    )
    users = map_users(EASE(l2=1.0).fit(emptied), most=10)
    assert len(users.rows) == 10
    assert (np.diff(users.rows) > 0).all()
    assert users.rows[-1] == 39
    assert users.point_of(39) == 9
    assert users.point_of(0) is None
    assert users.point_of(1000) is None


def test_a_stranger_does_not_squeeze_the_others_into_a_dot(data: PlantedData) -> None:
    """One user has what nobody else has."""
    known = data.interactions
    items = IdMap(np.append(known.items.values, ["odd0", "odd1"]), "item")
    stranger = replace(
        known, items=items, item_rows=np.append(known.item_rows[: known.offsets[-2]], [60, 61]).astype(np.int32),
        offsets=np.append(known.offsets[:-1], known.offsets[-2] + 2), times=None,
    )  # fmt: skip
    points = map_users(EASE(l2=20.0).fit(stranger)).points[:-1]
    assert (points.std(axis=0) > 0.2).all()
    assert np.abs(points).max() <= 1


# -- Every kind of model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_can_be_explored(name: str, data: PlantedData) -> None:
    make, kind, count = MODELS[name]
    model = make().fit(data.interactions)
    known, users = data.interactions, map_users(model)
    assert np.isfinite(users.points).all()
    assert np.abs(users.points).max() <= 1
    assert len(np.unique(users.points, axis=0)) > len(users.rows) / 2
    facts, listed = model_facts(model), list_communities(model, users)
    assert listed["kind"] == kind
    assert len(listed["communities"]) == facts["communities"] == len(users.centres) == count
    share = 0.3 if isinstance(model, Loca) else None
    assert listed["alpha"] == facts["alpha"] == share
    assert facts["kind"] == type(model).__name__
    assert (facts["users"], facts["items"]) == (known.n_users, known.n_items)
    json.dumps([facts, listed], allow_nan=False)
    assert users.community.min() >= (0 if kind == "mixtures" else -1)
    assert users.community.max() < max(count, 1) if count else (users.community == -1).all()
    user = known.users.ids([3])[0]
    assert len(history_counts(model, user)) == len(model.explain(user).history)
    assert describe_user(model, users, 3)["user"] == user
    for number in range(count):
        about = describe_community(model, number, 4, users)
        json.dumps(about, allow_nan=False)
        assert about["name"] == listed["communities"][number]["name"]
        assert (about["anchor"] is None) == (kind == "members")
        assert (about["mixture"] is None) == (kind != "mixtures")
        assert [item["rank"] for item in about["items"]] == [1, 2, 3, 4]
    with pytest.raises(DataError, match="unknown community 99; this model has"):
        describe_community(model, 99, 4, users)


def test_communities_without_anchors_lie_where_their_members_are(data: PlantedData) -> None:
    """A finder of a user's own, whose communities are named by what their members have."""
    model = local_ease(KMeansGroups(n=4)).fit(data.interactions)
    users = map_users(model)
    memberships = model.answer_weights(data.interactions.histories()).toarray()
    means = memberships.T @ users.points / memberships.sum(axis=0)[:, None]
    # What is far outside comes nearer, and the mean is taken before that.
    assert np.abs(users.centres - means).max() < 0.02
    assert np.array_equal(users.community, memberships.argmax(axis=1))
    for number, about in enumerate(list_communities(model, users)["communities"]):
        known_for = describe_community(model, number, users=users)["known_for"]
        assert about["name"].split(", ")[0] in [item["title"] for item in known_for]


def test_a_model_that_gives_all_to_the_global_one_still_shows_its_communities(
    mixture: Loca,
) -> None:
    found = list_communities(mixture.with_global_share(1), map_users(mixture))
    assert found["alpha"] == 1
    assert len(found["communities"]) == 3


def test_a_model_of_a_bare_matrix_is_refused(data: PlantedData) -> None:
    with pytest.raises(DataError, match="fitted on a bare matrix"):
        map_users(EASE().fit(data.interactions.matrix()))


# -- Communities -------------------------------------------------------------------------------------------------------


def test_the_lists_of_a_community_are_those_of_its_model_and_of_the_global_one(
    mixture: Loca, data: PlantedData
) -> None:
    known, users = data.interactions, map_users(mixture)
    for number in range(3):
        about = describe_community(mixture, number, 5)
        positions = mixture.local_.communities.locate(known.histories())
        memberships = np.exp(positions[:, number])
        order = np.argsort(-memberships, kind="stable")
        strongest = users.typical[number]
        assert np.allclose(memberships[strongest], memberships[order[:50]])
        assert [one["row"] for one in about["typical_users"]] == strongest[:5].tolist()
        assert [one["user"] for one in about["typical_users"]] == known.users.ids(strongest[:5])
        mean = np.average(
            known.histories(strongest).toarray(), axis=0, weights=memberships[strongest]
        )
        history = csr_array(mean[None].astype(np.float32))
        for key, scores in (
            ("items", mixture.local_.models.score_with(number, history)),
            ("global", mixture.global_.score(history)),
        ):
            rows, best = rank_top_n(scores, None, 5)
            assert [one["item"] for one in about[key]] == known.items.ids(rows[0])
            assert np.allclose([one["score"] for one in about[key]], best[0], atol=1e-5)


def test_communities_are_called_as_an_explanation_calls_them(
    mixture: Loca, kernels: Loca, data: PlantedData
) -> None:
    names = [one["name"] for one in list_communities(mixture, map_users(mixture))["communities"]]
    told = mixture.explain("u003").to_json()["communities"]
    assert {one["community"]: one["name"] for one in told} == {
        one["community"]: names[one["community"]] for one in told
    }
    assert len(set(names)) == 3
    around = list_communities(kernels, map_users(kernels))["communities"]
    anchors = data.interactions.users.ids(kernels.local_.communities.anchors)
    assert [one["name"] for one in around] == [f"around {one}" for one in anchors]
    assert [one["anchor"] for one in around] == anchors
    assert describe_community(mixture, 0)["known_for"][0]["lift"] > 1
    with pytest.raises(DataError, match="unknown community 3; this model has communities 0 to 2"):
        describe_community(mixture, 3)


def test_counts_are_the_recency_weights_in_the_order_of_the_history(data: PlantedData) -> None:
    model = EASE(l2=20.0).fit(data.interactions)
    assert history_counts(model, [["i05", "i03", "i09"]], Recency(half_life=1)) == [0.25, 0.5, 1.0]
    assert history_counts(model, [["i05", "i03", "i09"]]) == [1.0, 1.0, 1.0]


# -- Search ------------------------------------------------------------------------------------------------------------


def test_ids_come_before_titles_and_words_are_found_by_their_beginnings() -> None:
    titles = [
        "Matrix, The (1999)",
        "Amélie (2001)",
        "I1 Robot",
        "The Thin Red Line",
        "Red Matrix",
        "Zoo",
    ]
    data = named(titles, ["anna", "Ann", "bob", "Ánn2", "i1"])

    def items(text: str, n: int = 20) -> list[str]:
        return [one["item"] for one in search(data, text, "items", n)["items"]]

    assert items("matrix") == ["i0", "i4"]
    assert items("the MAT") == ["i0"]
    assert items("red m") == ["i4"]
    assert items("red") == ["i4", "i3"]
    assert items("amelie") == items("AMÉ") == ["i1"]
    assert items("i1") == ["i1", "i2"]
    assert items("trix") == items("") == items("  ") == items("?!") == []
    assert items("i", n=3) == ["i0", "i1", "i2"]
    assert items("zoo" + " " * 300 + "matrix") == ["i5"]
    found = search(data, "ann")
    assert found["users"] == [
        {"user": "Ann", "row": 1},
        {"user": "Ánn2", "row": 3},
        {"user": "anna", "row": 0},
    ]
    assert found["items"] == []
    assert search(data, "i1", "users") == {"users": [{"user": "i1", "row": 4}], "items": []}
    assert search(data, "zoo")["items"] == [{"item": "i5", "title": "Zoo"}]
    with pytest.raises(ConfigError, match="unknown what 'films'"):
        search(data, "a", "films")


def test_numbers_are_found_by_their_digits(data: PlantedData) -> None:
    known = replace(data.interactions, users=IdMap(np.arange(300) + 1000))
    assert [one["user"] for one in search(known, "112", "users")["users"]] == [*range(1120, 1130)]


# -- The exported page -------------------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A built page, with a script that holds what could end its element."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text(
        '<!doctype html><html><head><meta charset="utf-8"><link rel="stylesheet" href="explorer/explorer.css"></head>'
        '<body><div id="explorer"></div><script src="explorer/explorer.js" defer></script></body></html>'
    )
    (folder / "explorer.js").write_text('const end = "</script><!-- x -->";\n')
    (folder / "explorer.css").write_text("body { color: red }\n")
    return folder


def test_an_exported_page_holds_everything_and_loads_nothing(
    mixture: Loca, page: Path, tmp_path: Path
) -> None:
    known = mixture.train_data_
    labels = {
        item: f"</script><script>alert('{item}')</script><!--"
        for item in known.items.values.tolist()
    }
    model = mixture.with_global_share(0.5)
    model.train_data_ = replace(known, items=known.items.with_labels(labels))
    out = tmp_path / "new" / "page.html"
    assert export_page(model, "films", "0123456789abcdef", out, 7, page) == 7
    html = out.read_text()
    assert not re.search(r"https?:|\bsrc=|\bhref=|<link", html)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", html, re.S)
    assert [one for one, _ in scripts] == [' type="application/json" id="loca-data"', ""]
    assert html.count("<script") == html.count("</script>") == 2
    assert "<!--" not in html
    # The policy allows this script and this style alone.
    style = re.findall(r"<style>(.*?)</style>", html, re.S)[0]
    hashes = [
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
        for one in (scripts[1][1], style)
    ]
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)[0]
    assert policy.startswith(
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}';"
    )
    # The data are the replies of the service.
    found = json.loads(scripts[0][1])
    about = {"model": "films", "fingerprint": "0123456789abcdef"}
    assert found["models"]["default"] == found["models"]["models"][0]["name"] == "films"
    assert parsed(base64.b64decode(found["map"]))[:2] == (300, 3)
    assert (
        found["communities"]["communities"]
        == list_communities(model, map_users(model))["communities"]
    )
    assert found["community"]["2"] == about | describe_community(model, 2)
    assert list(found["users"]) == ["0", "49", "99", "149", "199", "249", "299"]
    one = found["users"]["49"]
    assert one["user"] == about | describe_user(model, map_users(model), 49)
    assert [item["item"] for item in one["explain"]["items"]] == model.recommend("u049")[0][
        0
    ].tolist()
    assert one["explain"]["history"][0]["title"].startswith("</script>")
    assert one["explain"]["counts"] == [1.0] * len(one["explain"]["history"])
    assert {len(item["because"]) for item in one["explain"]["items"]} == {8}


def test_a_page_that_is_not_there_is_said_in_one_line_and_nothing_is_written(
    mixture: Loca, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="the explorer's page cannot be read"):
        export_page(mixture, "films", "", tmp_path / "page.html", page=tmp_path / "none")
    assert not list(tmp_path.iterdir())
