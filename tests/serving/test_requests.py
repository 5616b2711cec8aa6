"""What requests mean: strict filters, ids and titles apart, users by id and by row, and notes in every reply."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import loca
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.remarks import Remark, collect_remarks, remark
from loca.serving import server
from loca.serving.app import Settings, say
from service_talk import Talk

# One film is called by the id of another, one by the number of a user, two by one name.
TITLES = {1: "30 (2007)", 2: "Iron Fever (1999)", 3: "Twins", 4: "Twins", 30: "Quiz Show (1994)"}
MODELS: dict[str, Callable[[], Any]] = {
    "ease": lambda: loca.EASE(l2=10),
    "popular": loca.Popularity,
    "mixture": lambda: loca.Loca(
        base=loca.EASE(l2=10),
        communities=loca.Mixtures(n=3, mixtures=1),
        combiner=loca.FixedShare(0.3),
    ),
    "blend": lambda: loca.Blend(
        parts=[loca.EASE(), loca.Popularity()], columns=[(0, 1.0, 0.6), (1, 1.0, 0.4)]
    ),
}
OF_FIT = Remark("low-ratings", "ratings of 1 count as likes")


@pytest.fixture(scope="module")
def data() -> Interactions:
    """Whole-number ids of items, from 1, with titles; users from 101."""
    known = loca.planted_communities(
        users=60, items=40, groups=5, history=12, shortest_history=10
    ).interactions
    labels = [TITLES.get(number, f"Film {number} (20{number:02})") for number in range(1, 41)]
    items = IdMap(np.arange(1, 41), "item", labels=np.array(labels, object))
    return replace(known, items=items, users=IdMap(np.arange(101, 161)))


@pytest.fixture(scope="module")
def models(data: Interactions) -> dict[str, Any]:
    found = {name: make().fit(data) for name, make in MODELS.items()}
    found["ease"].remarks_ = (OF_FIT,)
    return found


@pytest.fixture(scope="module")
def talk(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Talk:
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(folder / name)
    return Talk(*(folder / name for name in models))


def answers(talk: Talk, path: str, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post(path, json=body) for body in bodies]

    found: list[httpx.Response] = talk(ask)
    return found


def listed(reply: Any) -> list[Any]:
    return [one["item"] for one in reply["items"]]


# -- Filters -----------------------------------------------------------------------------------------------------------


def with_one_unknown_filter() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each filter with an unknown id among known ones, asked for by everybody who can ask."""
    askers: list[dict[str, Any]] = [
        {"user": 101},
        {"user": "nobody"},
        {"items": [2, 5]},
        {"items": []},
    ]
    for unknown in (999, "no such film", "Film 7 (2007)"):
        for name in ("only", "never", "candidates"):
            for asker in askers:
                yield name, {**asker, name: [5, unknown]}


@pytest.mark.parametrize("path", ["/v1/recommend", "/v1/explain", "/v1/recommend/batch"])
@pytest.mark.parametrize("on_unknown", ["error", "skip", "popular"])
@pytest.mark.parametrize("model", MODELS)
def test_an_unknown_id_in_a_filter_is_refused_whatever_on_unknown_says(
    talk: Talk, model: str, on_unknown: str, path: str
) -> None:
    pairs = [
        (name, {**body, "model": model, "on_unknown": on_unknown})
        for name, body in with_one_unknown_filter()
        # Who cannot be answered is refused before the filter is looked at.
        if on_unknown != "error" or body.get("user") == 101 or body.get("items")
    ]
    bodies = [body for _, body in pairs]
    if path.endswith("batch"):
        [reply] = answers(talk, path, [{"requests": bodies}])
        problems = [one["problem"] for one in reply.json()["answers"]]
    else:
        problems = [one.json() for one in answers(talk, path, bodies)]
    for (name, body), problem in zip(pairs, problems, strict=True):
        assert problem["status"] == 404, body
        assert problem["detail"].startswith(f"{name}: unknown item"), body
        assert "on_unknown" not in problem["detail"]


@pytest.mark.parametrize("model", MODELS)
def test_a_block_list_holds_for_users_who_are_not_known(talk: Talk, model: str) -> None:
    body = {"user": "new", "on_unknown": "popular", "model": model, "n": 5}
    [free] = answers(talk, "/v1/recommend", [body])
    best = listed(free.json())[:2]
    held, text = answers(
        talk, "/v1/recommend", [{**body, "never": best}, {**body, "never": [str(best[0])]}]
    )
    assert not set(best) & set(listed(held.json()))
    assert best[0] not in listed(text.json())


def test_the_client_refuses_an_unknown_id_in_a_filter_too(
    data: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loca.EASE(l2=10).fit(data).save(tmp_path / "m")
    client = client_of(Talk(tmp_path / "m"), monkeypatch)
    for name in ("only", "never"):
        for on_unknown in ("error", "skip", "popular"):
            with pytest.raises(loca.DataError, match=f"^{name}: unknown item 999; expected an id"):
                client.recommend([101], on_unknown=on_unknown, **{name: [2, 999]})
    with pytest.raises(loca.DataError, match=r"^candidates: unknown item 999"):
        client.recommend([101], on_unknown="skip", candidates={101: [2, 999]})
    with pytest.raises(loca.DataError, match=r"candidates: user '1O1' is not asked for here"):
        client.recommend([101], candidates={"1O1": [2]})


def test_an_id_as_text_means_the_number_in_candidates_too(talk: Talk) -> None:
    body = {"user": "0101", "candidates": ["3", 5], "hide_seen": False}
    [reply] = answers(talk, "/v1/recommend", [body])
    assert reply.json()["user"] == 101
    assert sorted(listed(reply.json())) == [3, 5]


# -- Ids and titles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_a_title_is_a_title_whatever_has_it_for_an_id(
    talk: Talk, models: dict[str, Any], model: str
) -> None:
    bodies: list[dict[str, Any]] = [
        {"titles": ["30"]},
        {"titles": ["30 (2007)", "iron fever"]},
        {"items": ["30"]},
        {"items": [30, 2]},
    ]
    understood = [[1], [1, 2], [30], [30, 2]]
    found = answers(talk, "/v1/recommend", [{**body, "model": model} for body in bodies])
    for reply, history in zip(found, understood, strict=True):
        document = reply.json()
        assert document["history"] == [{"item": item, "title": TITLES[item]} for item in history]
        assert listed(document) == models[model].recommend([history], 10).items[0].tolist()


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"titles": ["5"]}, 404, "unknown title '5'; it is an id, and those go into items"),
        ({"titles": ["Nothing"]}, 404, "unknown title 'Nothing'; search with GET /v1/search?q="),
        ({"titles": ["Twins"]}, 422, "titles: 'Twins' fits 2 items: 3 (Twins), 4 (Twins); give"),
        ({"titles": ["Twins"], "on_unknown": "skip"}, 422, "titles: 'Twins' fits 2 items"),
        ({"items": ["Iron Fever"]}, 404, "unknown item 'Iron Fever'; items are ids: search with"),
        ({"items": ["Iron Fever"]}, 404, "give titles in titles, or say on_unknown"),
        ({"items": ["Iron Fever"], "on_unknown": "never"}, 400, "on_unknown"),
        ({"items": [2], "never": ["Iron Fever"]}, 404, "never: unknown item 'Iron Fever'"),
        ({"titles": []}, 422, "titles: expected at least one item to answer from"),
    ],
)
def test_ids_and_titles_each_have_their_field(
    talk: Talk, body: dict[str, Any], status: int, detail: str
) -> None:
    [reply] = answers(talk, "/v1/recommend", [body])
    assert (reply.status_code, reply.json()["status"]) == (status, status)
    assert detail in reply.json()["detail"]


def test_a_title_is_neither_a_similar_item_nor_one_to_explain(talk: Talk) -> None:
    found = talk.send("GET", "/v1/similar/Iron Fever")
    assert (found.status_code, found.json()["detail"][:24]) == (404, "unknown item 'Iron Fever")
    [reply] = answers(talk, "/v1/explain", [{"user": 101, "item": "Iron Fever"}])
    assert reply.json()["detail"].startswith("item: unknown item 'Iron Fever'")


def test_a_model_without_titles_says_so(data: Interactions, tmp_path: Path) -> None:
    bare = replace(data, items=IdMap(data.items.values, "item"))
    loca.EASE(l2=10).fit(bare).save(tmp_path / "m")
    talk = Talk(tmp_path / "m")
    refused, echoed = answers(talk, "/v1/recommend", [{"titles": ["30"]}, {"items": ["30"]}])
    assert refused.status_code == 422
    assert refused.json()["detail"] == "titles: this model knows no titles; give ids in items"
    assert echoed.json()["history"] == [{"item": 30}]
    assert echoed.json()["notes"] == []


def test_a_long_history_is_repeated_by_its_last_items(talk: Talk) -> None:
    long = [1 + place % 40 for place in range(130)]
    body = {"items": long, "hide_seen": False, "n": 3}
    whole, cut = answers(talk, "/v1/recommend", [{**body, "items": long[:100]}, body])
    assert [one["item"] for one in whole.json()["history"]] == long[:100]
    assert whole.json()["notes"] == []
    assert [one["item"] for one in cut.json()["history"]] == long[-100:]
    assert [one["kind"] for one in cut.json()["notes"]] == ["history-cut"]
    assert "130 items" in cut.json()["notes"][0]["text"]


# -- Users -------------------------------------------------------------------------------------------------------------


def test_a_user_is_found_by_id_and_a_point_of_the_map_by_row(talk: Talk) -> None:
    async def ask(client: httpx.AsyncClient) -> list[Any]:
        paths = ("/v1/users/102", "/v1/map/users/1", "/v1/users/1", "/v1/map/users/102")
        return [await client.get(path) for path in paths]

    by_id, by_row, no_id, no_row = talk(ask)
    assert by_id.json() == by_row.json()
    assert (by_id.json()["user"], by_id.json()["row"]) == (102, 1)
    assert (no_id.status_code, no_row.status_code) == (404, 404)
    assert no_id.json()["detail"] == "unknown user '1'; search with GET /v1/search?q="
    assert no_row.json()["detail"] == "unknown user row 102; this model has rows 0 to 59"


# -- Notes -------------------------------------------------------------------------------------------------------------


def kinds(reply: Any) -> list[str]:
    assert all(set(one) == {"kind", "text"} for one in reply["notes"])
    return [one["kind"] for one in reply["notes"]]


NOTED: list[tuple[dict[str, Any], list[str]]] = [
    ({"user": 101}, []),
    ({"items": [2, 5]}, []),
    ({"items": [2, 999, "x"], "on_unknown": "skip"}, ["items-left-out"]),
    ({"titles": ["Iron Fever", "Nothing"], "on_unknown": "popular"}, ["items-left-out"]),
    ({"items": ["x"], "on_unknown": "popular"}, ["items-left-out", "popular-instead"]),
    ({"items": ["x"], "on_unknown": "skip"}, ["items-left-out", "users-left-out"]),
    ({"items": [], "on_unknown": "skip"}, ["users-left-out"]),
    ({"user": "new", "on_unknown": "popular"}, ["popular-instead"]),
    ({"user": "new", "on_unknown": "skip"}, ["users-left-out"]),
    ({"items": ["30", 2]}, ["ambiguous-item"]),
    ({"items": [2], "never": ["30"]}, ["ambiguous-item"]),
]


@pytest.mark.parametrize("model", MODELS)
def test_every_list_has_its_own_notes_alone_or_in_a_batch(talk: Talk, model: str) -> None:
    bodies = [{**body, "model": model} for body, _ in NOTED]
    alone = [one.json() for one in answers(talk, "/v1/recommend", bodies)]
    [batch] = answers(talk, "/v1/recommend/batch", [{"requests": bodies}])
    together = batch.json()["answers"]
    for body, expected, one, other in zip(
        bodies, (found for _, found in NOTED), alone, together, strict=True
    ):
        assert kinds(one) == expected, body
        assert one["notes"] == other["notes"]
        assert listed(one) == listed(other)


def test_requests_that_are_answered_together_have_their_own_notes(talk: Talk) -> None:
    async def ask(client: httpx.AsyncClient) -> list[Any]:
        sent = (client.post("/v1/recommend", json=body) for body, _ in NOTED * 4)
        return [one.json() for one in await asyncio.gather(*sent)]

    assert [kinds(one) for one in talk(ask)] == [expected for _, expected in NOTED * 4]


def test_notes_say_what_was_left_out(talk: Talk) -> None:
    unknown = ["a", "b", 998, 999]
    [reply] = answers(
        talk, "/v1/recommend", [{"items": [*unknown, 2], "on_unknown": "skip", "n": 2}]
    )
    [note] = reply.json()["notes"]
    assert note["text"] == "4 unknown items of the history left out: 'a', 'b', 998 and 1 more"
    assert reply.json()["history"] == [{"item": 2, "title": "Iron Fever (1999)"}]
    [reply] = answers(talk, "/v1/recommend", [{"items": ["30"]}])
    assert reply.json()["notes"] == [
        {
            "kind": "ambiguous-item",
            "text": "'30' is taken as the id of Quiz Show (1994); the title 30 (2007) has the id 1",
        }
    ]


def test_replies_other_than_lists_have_notes(talk: Talk, models: dict[str, Any]) -> None:
    async def ask(client: httpx.AsyncClient) -> list[Any]:
        explained = {"items": [2, "x"], "on_unknown": "skip"}
        found = [
            await client.get("/v1/recommend/101"),
            await client.get("/v1/similar/2"),
            await client.get("/v1/similar/30"),
            await client.get("/v1/communities?model=mixture"),
            await client.get("/v1/communities/0?model=mixture"),
            await client.post("/v1/explain", json=explained),
            await client.post("/v1/recommend", json={**explained, "explain": True}),
            await client.get("/v1/models"),
        ]
        return [one.json() for one in found]

    by_id, similar, ambiguous, many, one, why, both, served = talk(ask)
    assert [kinds(reply) for reply in (by_id, similar, ambiguous)] == [[], [], ["ambiguous-item"]]
    of_fit = [one.to_json() for one in models["mixture"].remarks_ if one.kind == "communities"]
    assert many["notes"] == one["notes"] == of_fit
    assert kinds(why) == kinds(both) == ["items-left-out"]
    assert {one["name"]: one["notes"] for one in served["models"]} == {
        name: [one.to_json() for one in model.remarks_] for name, model in models.items()
    }
    assert served["models"][0]["notes"] == [OF_FIT.to_json()]


def test_somebody_without_a_history_has_a_list_without_an_explanation(talk: Talk) -> None:
    body = {"user": "new", "on_unknown": "popular"}
    [reply] = answers(talk, "/v1/recommend", [{**body, "explain": True}])
    assert len(listed(reply.json())) == 10
    assert reply.json()["explanation"] is None
    [refused] = answers(talk, "/v1/explain", [body])
    assert refused.status_code == 422
    assert "no history" in refused.json()["detail"]


def test_the_service_warns_nobody(models: dict[str, Any], tmp_path: Path) -> None:
    models["ease"].save(tmp_path / "m")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        talk = Talk(tmp_path / "m")
        answers(talk, "/v1/recommend", [body for body, _ in NOTED])
        talk.send("GET", "/v1/similar/30")
        talk.send("GET", "/v1/models")
    assert not [str(one.message) for one in caught if one.category is loca.LocaWarning]


def test_whoever_starts_the_service_does_not_collect_what_it_tells_its_clients(
    models: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models["ease"].save(tmp_path / "m")

    def run(self: Any, sockets: Any) -> None:
        for one in sockets:
            one.close()
        with pytest.warns(loca.LocaWarning, match="of a request"):
            remark("leak", "of a request")

    monkeypatch.setattr(server.GracefulServer, "run", run)
    monkeypatch.setattr("loca.serving.app.log_as_json", lambda: None)
    with collect_remarks(lambda one: None) as collected:
        server.serve(Settings({"m": str(tmp_path / "m")}), port=0)
    assert collected.remarks == ()


# -- Similar items, the log and the description ------------------------------------------------------------------------


def test_a_model_that_knows_no_similarity_says_so(talk: Talk, models: dict[str, Any]) -> None:
    found = talk.send("GET", "/v1/similar/2?model=popular")
    assert found.status_code == 422
    with pytest.raises(loca.DataError) as refused:
        models["popular"].similar_items([2])
    assert found.json()["detail"] == str(refused.value)
    scores = [one["score"] for one in talk.send("GET", "/v1/similar/2?n=40").json()["items"]]
    assert all(0 < score <= 1 for score in scores)


def test_a_log_line_has_its_time_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    say(event="test")
    written = json.loads(capsys.readouterr().err)
    moment = datetime.fromisoformat(written["time"])
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    assert len(written["time"].partition(".")[2].partition("+")[0]) == 3


def test_the_description_has_every_field_with_its_meaning(talk: Talk) -> None:
    document = talk.send("GET", "/openapi.json").json()
    schemas, text = document["components"]["schemas"], json.dumps(document)
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in schemas
    for name, field in schemas["ListRequest"]["properties"].items():
        assert field["description"], name
    for path in ("/v1/recommend", "/v1/recommend/{user}"):
        method = "post" if path == "/v1/recommend" else "get"
        reply = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]
        assert reply["schema"] == {"$ref": "#/components/schemas/ListReply"}
    similar = document["paths"]["/v1/similar/{item}"]["get"]
    assert "similarity" in similar["summary"]
    assert "422" in similar["description"]
    assert {"/v1/users/{user}", "/v1/map/users/{row}", "/metrics"} <= set(document["paths"])


# -- The client --------------------------------------------------------------------------------------------------------


def client_of(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> loca.Client:
    """A client whose requests a service answers without a network."""
    client = loca.Client("http://localhost")

    def request(method: str, path: str, **more: Any) -> httpx.Response:
        # As in another process: the remarks there are not told here.
        return Context().run(lambda: talk.send(method, f"/{path}", **more))

    monkeypatch.setattr(client._http, "request", request)
    return client


def test_notes_are_warnings_and_remarks_on_the_side_of_the_client(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(talk, monkeypatch)
    with pytest.warns(loca.LocaWarning) as caught:
        found = client.recommend([101, "a", "b", "c"], on_unknown="popular")
    text = "user 'a' is not known: the list is what is popular; and 2 more such notes"
    assert [str(one.message) for one in caught] == [f"popular-instead: {text}"]
    assert found.remarks == (Remark("popular-instead", text),)
    assert caught[0].filename == __file__
    with pytest.warns(loca.LocaWarning, match="ambiguous-item: '30' is taken as the id"):
        similar = client.similar_items("30", 3)
    assert [one.kind for one in similar.remarks] == ["ambiguous-item"]
    with pytest.warns(loca.LocaWarning, match="ambiguous-item"):
        client.explain([["30", 2]])


def test_what_has_no_notes_warns_nobody(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(talk, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error", loca.LocaWarning)
        assert client.recommend([[2, 5]], 3).remarks == ()
        # That a reply repeats a long history in part is nothing to somebody who does not see it.
        long = [1 + place % 40 for place in range(130)]
        assert client.recommend([long], 3, hide_seen=False).remarks == ()


def test_a_note_of_a_newer_service_is_told_too(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(talk, monkeypatch)
    note = {"kind": "newer", "text": "something else"}
    answer = {"items": [{"item": 1, "score": 1.0, "rank": 1}], "notes": [note]}
    document = {"answers": [answer]}
    monkeypatch.setattr(
        client._http, "request", lambda *given, **more: httpx.Response(200, json=document)
    )
    with pytest.warns(loca.LocaWarning, match="^service: newer: something else$"):
        client.recommend([101], 1)


def test_an_unknown_argument_of_the_client_is_refused_with_the_nearest() -> None:
    call: Any = loca.Client("http://localhost").recommend
    with pytest.raises(TypeError, match="unknown argument 'on_unkown'; did you mean 'on_unknown'"):
        call([101], on_unkown="skip")
