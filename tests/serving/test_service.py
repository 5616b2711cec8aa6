"""The service: the same answers as the models, each refusal with its status, and versions that take over whole."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import loca
from contract_models import FOR_THESE_USERS, MADE
from loca.cli.main import main
from loca.data.synthetic import PlantedData
from loca.serving.app import Service, Settings, log_as_json
from loca.serving.explorer import map_users
from loca.serving.model_store import ModelStore, load_version
from loca.serving.scorer import ListOptions, QueueFullError, Scorer
from loca.serving.server import TimeoutProtocol
from service_talk import Talk


@pytest.fixture(scope="module")
def talk(model_folder: Path) -> Talk:
    return Talk(model_folder)


@pytest.mark.parametrize("name", [name for name in MADE if name != FOR_THESE_USERS])
def test_every_kind_of_model_answers_as_in_process(
    name: str, planted: PlantedData, tmp_path: Path
) -> None:
    MADE[name]().fit(planted.interactions).save(tmp_path / "model")
    model = loca.load(tmp_path / "model")
    users = model.train_data_.users.values[::8].tolist()

    async def ask(client: httpx.AsyncClient) -> list[Any]:
        replies = [client.get(f"/v1/recommend/{user}") for user in users]
        return [reply.json() for reply in await asyncio.gather(*replies)]

    answers = Talk(tmp_path / "model")(ask)
    assert [answer["user"] for answer in answers] == users
    items, all_scores = model.recommend(users, 10)
    for answer, expected, scores in zip(answers, items.tolist(), all_scores, strict=True):
        expected = [item for item in expected if item is not None]
        listed = [item["item"] for item in answer["items"]]
        found = [item["score"] for item in answer["items"]]
        # Scores of a batch are summed in another order; items that are equal but for that may
        # change places.
        np.testing.assert_allclose(found, scores[: len(found)], rtol=1e-4, atol=1e-5)
        is_near_tie = np.abs(np.diff(scores[: len(found)])).min(initial=1) < 1e-4
        n_common = len(set(listed) & set(expected))
        assert listed == expected or (is_near_tie and n_common >= len(expected) - 1)


def test_requests_that_wait_are_answered_together_and_each_rightly(model_folder: Path) -> None:
    talk, sizes = Talk(model_folder), []
    talk.service.scorer.on_batch = sizes.append
    model = loca.load(model_folder)
    users = model.train_data_.users.values.tolist()[:100]

    async def ask(client: httpx.AsyncClient) -> list[Any]:
        bodies = [{"user": user, "n": 1 + place % 7} for place, user in enumerate(users)]
        bodies += [{"items": ["i03", "i05"], "n": 4}, {"user": users[0], "n": 3, "never": ["i03"]}]
        return await asyncio.gather(*(client.post("/v1/recommend", json=body) for body in bodies))

    *known, history, filtered = (one.json() for one in talk(ask))
    for place, answer in enumerate(known):
        wanted = model.recommend([users[place]], 1 + place % 7).items[0].tolist()
        assert [one["item"] for one in answer["items"]] == wanted
    assert [one["item"] for one in history["items"]] == model.recommend([["i03", "i05"]], 4).items[
        0
    ].tolist()
    wanted = model.recommend([users[0]], 3, never=["i03"]).items[0].tolist()
    assert [one["item"] for one in filtered["items"]] == wanted
    assert max(sizes) > 1
    assert sum(sizes) == len(users) + 2


def test_requests_with_one_global_share_are_answered_together(model_folder: Path) -> None:
    talk, sizes = Talk(model_folder), []
    talk.service.scorer.on_batch = sizes.append
    body = {"requests": [{"user": f"u{number:03}", "global_share": 0.25} for number in range(1, 9)]}
    answers = talk.send("POST", "/v1/recommend/batch", json=body).json()["answers"]
    assert all(len(one["items"]) == 10 for one in answers)
    assert max(sizes) > 1


def test_options_of_a_list_mean_what_they_mean_in_process(model_folder: Path, talk: Talk) -> None:
    model = loca.load(model_folder)
    user = model.train_data_.users.values.tolist()[5]
    half = loca.Recency(4, "positions")
    pairs: list[tuple[dict[str, Any], Any]] = [
        (
            {"user": user, "only": ["i01", "i02", "i03"]},
            model.recommend([user], only=["i01", "i02", "i03"]),
        ),
        (
            {"user": user, "candidates": ["i04", "i07"]},
            model.recommend([user], candidates={user: ["i04", "i07"]}),
        ),
        ({"user": user, "hide_seen": False}, model.recommend([user], hide_seen=False)),
        ({"user": user, "recency": "4"}, model.recommend([user], recency=half)),
        ({"user": user, "global_share": 1.0}, model.with_global_share(1.0).recommend([user])),
        (
            {"user": "nobody", "on_unknown": "popular"},
            model.recommend(["nobody"], on_unknown="popular"),
        ),
        ({"items": ["i01", "x"], "on_unknown": "skip"}, model.recommend([["i01"]])),
    ]
    titles = model.train_data_.items.labels
    if titles is not None:
        pairs.append(
            (
                {"titles": [titles[2], titles[9]]},
                model.recommend([model.train_data_.items.ids([2, 9])]),
            )
        )

    async def ask(client: httpx.AsyncClient) -> list[Any]:
        return [(await client.post("/v1/recommend", json=body)).json() for body, _ in pairs]

    for (body, wanted), answer in zip(pairs, talk(ask), strict=True):
        listed = [one for one in wanted.items[0].tolist() if one is not None]
        assert [one["item"] for one in answer["items"]] == listed, body


def test_a_list_similar_items_and_explanations_are_those_of_the_model(
    model_folder: Path, talk: Talk
) -> None:
    model = loca.load(model_folder)
    user = model.train_data_.users.values.tolist()[7]

    async def ask(client: httpx.AsyncClient) -> list[Any]:
        both = await client.post("/v1/recommend", json={"user": user, "n": 2, "explain": True})
        alone = await client.post("/v1/explain", json={"user": user, "n": 2})
        one = await client.post("/v1/explain", json={"user": user, "item": "i03"})
        like = await client.get("/v1/similar/i03?n=4")
        return [found.json() for found in (both, alone, one, like)]

    both, alone, one, like = talk(ask)
    wanted = json.loads(json.dumps(model.explain(user, n=2).to_json(), default=float))
    counts = alone.pop("counts")
    about = {"model": alone.pop("model"), "fingerprint": alone.pop("fingerprint")}
    assert alone.pop("notes") == []
    assert alone == wanted
    assert counts == [1.0] * len(alone["history"])
    assert both["explanation"] == {**wanted, "counts": counts}
    assert one["items"][0]["item"] == "i03"
    assert [item["item"] for item in like["items"]] == model.similar_items(["i03"], 4).items[
        0
    ].tolist()
    assert about["model"] == "films"
    assert len(about["fingerprint"]) == 16


def test_an_explanation_is_of_the_list_that_is_wanted(model_folder: Path, talk: Talk) -> None:
    chosen = ["i01", "i02", "i03", "i04", "i05", "i06", "i07", "i08"]
    bodies: list[dict[str, Any]] = [
        {"user": "u007", "only": chosen},
        {"user": "u007", "candidates": chosen, "hide_seen": False},
        {"user": "u007", "never": chosen},
        {"user": "u007", "only": []},
        {"items": ["i01", "nothing", "i02"], "on_unknown": "skip"},
    ]

    async def ask(client: httpx.AsyncClient) -> list[Any]:
        found = []
        for body in bodies:
            both = (
                await client.post("/v1/recommend", json={**body, "n": 3, "explain": True})
            ).json()
            alone = (await client.post("/v1/explain", json={**body, "n": 3})).json()
            found.append((both["items"], both["explanation"]["items"], alone["items"]))
        return found

    answers = talk(ask)
    for listed, both, alone in answers:
        assert [one["item"] for one in both] == [one["item"] for one in listed]
        assert alone == both
        assert [one["score"] for one in both] == pytest.approx(
            [one["score"] for one in listed], rel=1e-4
        )
    assert [len(listed) > 0 for listed, _, _ in answers] == [True, True, True, False, True]
    refused = Talk(model_folder, most_reasons=20).send(
        "POST", "/v1/explain", json={"user": "u007", "n": 30}
    )
    assert refused.status_code == 422
    assert "n: expected at most" in refused.json()["detail"]


def test_a_batch_has_an_end_for_each_request(talk: Talk) -> None:
    body = {"requests": [{"user": "u007", "n": 1}, {"user": "nobody"}, {"items": []}]}
    first, second, third = talk.send("POST", "/v1/recommend/batch", json=body).json()["answers"]
    assert len(first["items"]) == 1
    assert (second["problem"]["status"], third["problem"]["status"]) == (404, 422)


REFUSED = [
    ("POST", "/v1/recommend", b"{", 400, "expected JSON"),
    ("POST", "/v1/recommend", b"[" * 5000, 400, "body"),
    ("POST", "/v1/recommend", b'{"user": ["u1"]}', 400, "user"),
    ("POST", "/v1/recommend", b'{"user": "u007", "n": 0}', 400, "n"),
    ("POST", "/v1/recommend", b'{"user": "u007", "number": 3}', 400, "number"),
    ("POST", "/v1/recommend", b'{"user": true}', 400, "bool"),
    ("POST", "/v1/recommend", b'{"user": "u007", "n": 5000}', 422, "at most 1,000"),
    ("POST", "/v1/recommend", b'{"n": 3}', 422, "expected one of user, items"),
    ("POST", "/v1/recommend", b'{"user": "u007", "items": ["i01"]}', 422, "found 2"),
    ("POST", "/v1/recommend", b'{"user": "nobody"}', 404, "unknown user 'nobody'"),
    ("POST", "/v1/recommend", b'{"items": ["i01", "nothing"]}', 404, "unknown item 'nothing'"),
    ("POST", "/v1/recommend", b'{"user": "u007", "only": ["nothing"]}', 404, "only: unknown item"),
    ("POST", "/v1/recommend", b'{"titles": ["No Such Film"]}', 404, "unknown title 'No Such Film'"),
    ("POST", "/v1/recommend", json.dumps({"titles": ["x"] * 101}).encode(), 400, "length <= 100"),
    ("POST", "/v1/recommend", b'{"user": "u007", "model": "flims"}', 404, "did you mean 'films'"),
    ("POST", "/v1/recommend", b'{"user": "u007", "recency": "soon"}', 422, "recency: expected"),
    ("POST", "/v1/recommend", b'{"items": ["i01"], "recency": "30d"}', 422, "without times"),
    ("POST", "/v1/recommend", b'{"user": "u007", "global_share": 1.5}', 400, "<= 1"),
    ("POST", "/v1/explain", b'{"user": "u007", "item": "nothing"}', 404, "item: unknown item"),
    ("POST", "/v1/recommend/batch", b'{"requests": []}', 400, "length >= 1"),
    ("GET", "/v1/recommend/nobody", None, 404, "unknown user"),
    ("GET", "/v1/recommend/u007?n=ten", None, 422, "n: expected 1 to 1,000, found 'ten'"),
    ("GET", "/v1/recommend/u007?n=-2", None, 422, "n: expected 1 to 1,000, found -2"),
    ("GET", "/v1/recommend/u007?n=0", None, 422, "n: expected 1 to 1,000"),
    ("GET", "/v1/recommend/u007?count=3", None, 400, "unexpected parameter 'count'"),
    ("GET", "/v1/similar/nothing", None, 404, "unknown item"),
    ("GET", "/v1/communities/99", None, 404, "unknown community 99"),
    ("GET", "/v1/communities/-2", None, 404, "unknown community -2"),
    ("GET", "/v1/communities/two", None, 422, "number: expected a whole number"),
    ("GET", "/v1/users/4000", None, 404, "unknown user '4000'"),
    ("GET", "/v1/map/users/4000", None, 404, "unknown user row 4000; this model has rows 0 to "),
    ("GET", "/v1/map/users/-1", None, 404, "unknown user row -1"),
    ("GET", "/v1/map/users/u007", None, 422, "row: expected a whole number"),
    ("GET", "/v1/search?q=a&n=500", None, 422, "n: expected 1 to 100, found 500"),
    ("GET", "/v1/search?q=a&what=films", None, 422, "expected users, items or all"),
    ("GET", "/explorer/..%2fapp.py", None, 404, ""),
    ("GET", "/explorer/app.py", None, 404, "there is no"),
    ("GET", "/nowhere", None, 404, "nothing at this address; GET /docs"),
    ("GET", "/v1/models/", None, 404, ""),
    ("PUT", "/v1/models", None, 405, ""),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "detail"), REFUSED)
def test_what_cannot_be_answered_is_refused_in_one_line(
    talk: Talk, method: str, path: str, body: bytes | None, status: int, detail: str
) -> None:
    found = talk.send(method, path, content=body)
    assert (found.status_code, found.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    document = found.json()
    assert document["status"] == status
    assert detail in document["detail"]
    assert "\n" not in document["detail"]


@examples(max_examples=60)
@given(body=st.one_of(st.binary(max_size=80), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["user", "items", "titles", "n", "only", "never", "recency", "model", "x"]), inner, max_size=4),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_any_body_is_answered_or_refused(talk: Talk, body: bytes) -> None:
    async def ask(client: httpx.AsyncClient) -> list[int]:
        paths = ("/v1/recommend", "/v1/explain", "/v1/recommend/batch")
        return [(await client.post(path, content=body)).status_code for path in paths]

    assert all(status == 200 or 400 <= status < 500 for status in talk(ask))


def test_bodies_that_are_too_large_or_too_slow_are_refused(model_folder: Path) -> None:
    talk = Talk(model_folder, body_bytes=2000, body_seconds=0.05)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 100

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(0.5)
        yield b"}"

    assert talk.send("POST", "/v1/recommend", content=b"x" * 5000).status_code == 413
    assert talk.send("POST", "/v1/recommend", content=parts()).status_code == 413
    assert talk.send("POST", "/v1/recommend", content=slow()).status_code == 408


def test_a_token_is_needed_but_for_health_and_the_page(model_folder: Path) -> None:
    talk = Talk(model_folder, token="a-token-of-some-length")
    right = {"Authorization": "Bearer a-token-of-some-length"}
    for header in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "a-token-of-some-length"},
    ):
        for path in ("/v1/models", "/metrics", "/v1/recommend/u007", "/v1/map"):
            found = talk.send("GET", path, headers=header)
            assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert talk.send("GET", "/v1/models", headers=right).status_code == 200
    assert talk.send("GET", "/health/ready").status_code == 200
    assert talk.send("GET", "/").status_code == 200


def test_other_names_of_a_local_service_are_refused(model_folder: Path) -> None:
    talk = Talk(model_folder)
    for name, status in (
        ("evil.example", 421),
        ("localhost:8000", 200),
        ("127.0.0.2:8000", 200),
        ("[::1]:80", 200),
    ):
        assert talk.send("GET", "/v1/models", headers={"Host": name}).status_code == status
    assert (
        Talk(model_folder, local_only=False)
        .send("GET", "/v1/models", headers={"Host": "a.b"})
        .status_code
        == 200
    )


def test_a_client_that_asks_too_often_waits(model_folder: Path) -> None:
    talk = Talk(model_folder, rate=2.0)

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.get("/v1/models") for _ in range(4)]

    found = talk(ask)
    assert [one.status_code for one in found] == [200, 200, 429, 429]
    assert found[-1].headers["retry-after"] == "1"


def test_a_full_queue_is_refused_and_what_waits_is_answered_at_the_end(model_folder: Path) -> None:
    model = loca.load(model_folder)
    user = model.train_data_.users.values.tolist()[0]

    async def run() -> tuple[int, int]:
        scorer = Scorer(batch=4, queue=10)
        scorer.start()
        busy = asyncio.ensure_future(scorer.call(lambda: time.sleep(0.2)))
        await asyncio.sleep(0.05)
        asked = [
            asyncio.ensure_future(scorer.find_list(ListOptions(model, False), user, 3))
            for _ in range(14)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(scorer.stop)
        found = await asyncio.gather(*asked, return_exceptions=True)
        await busy
        return sum(isinstance(one, tuple) for one in found), sum(
            isinstance(one, QueueFullError) for one in found
        )

    assert asyncio.run(run()) == (10, 4)


def test_a_full_queue_says_when_to_come_again(model_folder: Path) -> None:
    talk = Talk(model_folder, queue=1)

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        busy = asyncio.ensure_future(talk.service.scorer.call(lambda: time.sleep(0.2)))
        await asyncio.sleep(0.05)
        found = await asyncio.gather(*(client.get("/v1/recommend/u007") for _ in range(3)))
        await busy
        return found

    found = sorted(talk(ask), key=lambda one: one.status_code)
    assert [one.status_code for one in found] == [200, 503, 503]
    assert found[-1].headers["retry-after"] == "1"


def test_one_bad_request_does_not_spoil_those_that_wait_with_it(model_folder: Path) -> None:
    model = loca.load(model_folder)

    async def run() -> list[Any]:
        scorer = Scorer()
        scorer.start()
        busy = asyncio.ensure_future(scorer.call(lambda: time.sleep(0.05)))
        names = ("u001", "nobody", "u002")
        asked = [
            asyncio.ensure_future(scorer.find_list(ListOptions(model, False), one, 3))
            for one in names
        ]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await busy
        await asyncio.to_thread(scorer.stop)
        return found

    first, second, third = asyncio.run(run())
    assert isinstance(second, loca.errors.DataError)
    for one, user in ((first, "u001"), (third, "u002")):
        found, place = one
        assert found.items[place].tolist() == model.recommend([user], 3).items[0].tolist()


def test_lists_wait_for_one_other_call_at_most(model_folder: Path) -> None:
    model, done = loca.load(model_folder), []

    async def run() -> None:
        scorer = Scorer(batch=2)
        scorer.start()
        busy = asyncio.ensure_future(scorer.call(lambda: time.sleep(0.1)))
        await asyncio.sleep(0.02)
        asked = [asyncio.ensure_future(scorer.call(lambda: None)) for _ in range(3)]
        asked += [
            asyncio.ensure_future(scorer.find_list(ListOptions(model, False), "u001", 3))
            for _ in range(4)
        ]
        for place, one in enumerate(asked):
            one.add_done_callback(
                lambda _, place=place: done.append("call" if place < 3 else "list")
            )
        await asyncio.gather(busy, *asked)
        await asyncio.to_thread(scorer.stop)

    asyncio.run(run())
    assert done == ["list", "list", "call", "list", "list", "call", "call"]


def test_a_failure_inside_is_not_shown_outside(
    model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Talk(model_folder)

    class Broken:
        train_data_ = loca.load(model_folder).train_data_

        def count_items(self) -> int:
            return 60

        def score(self, histories: Any) -> Any:
            raise RuntimeError("a secret of the inside")

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        version = talk.service.store.versions["films"]
        object.__setattr__(version, "model", Broken())
        return await client.get("/v1/recommend/u007")

    found = talk(ask)
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "secret" in caplog.text


def test_a_new_version_takes_over_and_a_broken_one_does_not(
    model_folder: Path, tmp_path: Path
) -> None:
    live = tmp_path / "live.loca"
    shutil.copytree(model_folder, live)
    talk, other = (
        Talk(live, reload_seconds=0.05),
        loca.EASE(l2=5.0).fit(loca.load(model_folder).train_data_),
    )

    async def until(client: httpx.AsyncClient, is_so: Any) -> Any:
        for _ in range(200):
            one = (await client.get("/v1/models")).json()["models"][0]
            if is_so(one):
                return one
            await asyncio.sleep(0.02)
        raise AssertionError("nothing changed")

    async def ask(client: httpx.AsyncClient) -> None:
        first = (await client.get("/v1/recommend/u007")).json()
        await asyncio.to_thread(other.save, live)
        about = await until(client, lambda one: one["fingerprint"] != first["fingerprint"])
        second = (await client.get("/v1/recommend/u007")).json()
        assert second["fingerprint"] == about["fingerprint"]
        assert [one["item"] for one in second["items"]] == other.recommend(["u007"]).items[
            0
        ].tolist()
        manifest = live / "model.json"
        sound = manifest.read_bytes()
        manifest.write_bytes(sound.replace(b'"EASE"', b'"EVIL"'))
        broken = await until(client, lambda one: one["error"])
        assert broken["fingerprint"] == second["fingerprint"]
        assert str(tmp_path) not in broken["error"]
        third = (await client.get("/v1/recommend/u007")).json()
        assert third == second
        manifest.write_bytes(sound)
        await until(client, lambda one: one["error"] is None)

    talk(ask)
    text = talk.service.metrics.text().decode()
    assert 'loca_reloads_total{model="live",result="loaded"}' in text
    assert 'loca_reloads_total{model="live",result="refused"} 1.0' in text
    assert text.count("loca_model{") == 1


def test_a_version_that_is_replaced_while_it_is_loaded_is_not_called_broken(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "films.loca"
    shutil.copytree(model_folder, folder)
    other = loca.EASE(l2=5.0).fit(loca.load(model_folder).train_data_)

    def replace_once(*given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        other.save(folder)
        raise loca.errors.ModelFileError("a file of the old version is gone")

    monkeypatch.setattr("loca.serving.model_store.load", replace_once)
    assert isinstance(load_version("films", folder).model, loca.EASE)


def test_nothing_holds_a_version_that_was_replaced(model_folder: Path) -> None:
    talk = Talk(model_folder)
    title = str(loca.load(model_folder).train_data_.items.label(0))

    async def ask(client: httpx.AsyncClient) -> bool:
        assert (await client.post("/v1/recommend", json={"titles": [title]})).status_code == 200
        assert (await client.get("/v1/search?q=i")).status_code == 200
        assert (await client.get("/v1/map")).status_code == 200
        versions = talk.service.store.versions
        old = weakref.ref(versions["films"])
        versions["films"] = load_version("films", model_folder)
        await client.get("/v1/recommend/u007")
        gc.collect()
        return old() is None

    assert talk(ask)


def test_a_map_is_made_once_however_many_want_it(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def make(model: Any) -> Any:
        made.append(model)
        time.sleep(0.05)
        return map_users(model)

    monkeypatch.setattr("loca.serving.model_store.map_users", make)

    async def ask(client: httpx.AsyncClient) -> list[int]:
        paths = ("/v1/map", "/v1/map", "/v1/communities", "/v1/map/users/3")
        return [
            one.status_code for one in await asyncio.gather(*(client.get(path) for path in paths))
        ]

    assert Talk(model_folder)(ask) == [200] * 4
    assert len(made) == 1


def test_a_version_that_fails_in_any_way_leaves_the_old_one(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(model_folder, tmp_path / "a.loca")
    shutil.copytree(model_folder, tmp_path / "b.loca")
    store = ModelStore({"a": tmp_path / "a.loca", "b": tmp_path / "b.loca"})
    store.load()
    other = loca.EASE(l2=5.0).fit(loca.load(model_folder).train_data_)
    for name in ("a", "b"):
        other.save(tmp_path / f"{name}.loca")

    def fail_once(*given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("loca.serving.model_store.load", fail_once)
    assert store.reload() == {"a": False, "b": True}
    assert store.errors == {"a": "a newer version cannot be loaded: it fails"}
    assert store.find("a").fingerprint != store.find("b").fingerprint


def test_replies_are_safe_to_show_and_the_interface_describes_itself(talk: Talk) -> None:
    for path in ("/", "/docs", "/v1/models", "/v1/recommend/nobody", "/metrics"):
        headers = talk.send("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
    document = talk.send("GET", "/openapi.json").json()
    assert set(document["paths"]) >= {
        "/v1/recommend",
        "/v1/recommend/{user}",
        "/v1/communities/{number}",
        "/v1/map",
    }
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text
    page = talk.send("GET", "/docs").text
    assert "<script" not in page
    assert all(path in page for path in document["paths"])


def test_figures_are_by_the_template_of_the_route(model_folder: Path) -> None:
    talk = Talk(model_folder)

    async def ask(client: httpx.AsyncClient) -> str:
        for path in (
            "/v1/recommend/u007",
            "/v1/recommend/u008",
            "/v1/recommend/nobody",
            "/nowhere/secret",
        ):
            await client.get(path)
        return (await client.get("/metrics")).text

    text = talk(ask)
    assert 'loca_requests_total{route="/v1/recommend/{user}",status="200"} 2.0' in text
    assert 'loca_requests_total{route="none",status="404"} 1.0' in text
    assert 'loca_unknown_ids_total{what="user"} 1.0' in text
    assert "u007" not in text
    assert "secret" not in text


# -- The command, as a process -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nowhere.loca"], "nowhere.loca: no loca model here"),
        (["nowhere.loca", "--workers", "2"], "nowhere.loca: no loca model here"),
        (
            ["MODEL", "--host", "0.0.0.0"],
            "--host 0.0.0.0: others can reach it; say --token-file FILE, or --no-auth",
        ),
        (["MODEL", "MODEL"], "there is a model 'films' already"),
        (["a/b=MODEL"], "expected a name of letters"),
        (["MODEL", "--token-file", "nowhere"], "nowhere: cannot be read"),
        (["MODEL", "--host", "192.0.2.1", "--no-auth"], "cannot listen on 192.0.2.1"),
        (["MODEL", "--port", "70000"], "65535"),
    ],
)
def test_a_mistake_is_one_line(
    model_folder: Path, words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *(word.replace("MODEL", str(model_folder)) for word in words)]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_where_it_serves_is_one_line_of_json(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "http://127.0.0.1:4711/"

    def run(settings: Settings, **more: Any) -> None:
        more["on_started"](address)

    monkeypatch.setattr("loca.serving.server.serve", run)
    assert main(["serve", f"films={model_folder}", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert json.loads(out) == {"address": address, "models": {"films": str(model_folder)}}


def test_where_it_can_be_explored_is_one_line_of_json(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "http://127.0.0.1:4711/"
    monkeypatch.setattr(
        "loca.cli.serve.start", lambda models, **options: options["on_started"](address)
    )
    assert main(["explore", str(model_folder), "--no-browser", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {"address": address, "models": {"films": str(model_folder)}}


def test_what_the_library_logs_is_a_line_of_json_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("loca", "uvicorn.error"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    log_as_json()
    logging.getLogger("loca").info("of no concern to anybody here")
    logging.getLogger("loca.service").warning("of concern")
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "of concern"


def test_a_process_serves_closes_silent_connections_and_ends_in_peace(model_folder: Path) -> None:
    code = (
        "import sys; from loca.serving.server import TimeoutProtocol; TimeoutProtocol.header_seconds = 0.3\n"
        "from loca.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "serve", str(model_folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving films at http://127.0.0.1:")
        port = int(line.rstrip("/\n").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as silent:
            silent.sendall(b"GET /v1/models HTT")
            assert silent.recv(100) == b""
        with socket.create_connection(("127.0.0.1", port), 10) as long:
            long.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000)
            assert long.recv(12) == b"HTTP/1.1 400"
        with socket.create_connection(("127.0.0.1", port), 10) as wrong:
            wrong.sendall(b"NO HTTP\r\n\r\n")
            assert wrong.recv(12) == b"HTTP/1.1 400"
        assert json.loads(process.stderr.readline())["event"] == "warning"
        assert httpx.get(f"http://127.0.0.1:{port}/v1/recommend/u007").status_code == 200
        logged = json.loads(process.stderr.readline())
        assert logged["route"] == "/v1/recommend/{user}"
        assert "u007" not in json.dumps(logged)
        with socket.create_connection(
            ("127.0.0.1", port), 10
        ) as peer:  # a request that is under way at the end
            peer.sendall(
                b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23\r\n\r\n"
            )
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            peer.sendall(b'{"user": "u007", "n":2}')
            assert peer.recv(12) == b"HTTP/1.1 200"
        assert process.wait(20) == 0


def test_the_rest_of_a_refused_body_is_no_request(model_folder: Path) -> None:
    settings = Settings(
        folders={"films": str(model_folder)}, token="a-token-of-some-length", log_requests=False
    )
    server = uvicorn.Server(
        uvicorn.Config(Service(settings).app, http=TimeoutProtocol, lifespan="on", log_config=None)
    )

    async def run() -> tuple[bytes, bytes]:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            serving = asyncio.ensure_future(server._serve([bound]))
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            writer.write(
                b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n"
            )
            first = await reader.readuntil(b"\r\n\r\n")
            for _ in range(20):
                writer.write(b" " * 10_000)
                await writer.drain()
                await asyncio.sleep(0)
            await reader.readuntil(b"}")
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            second = await reader.readuntil(b"\r\n\r\n")
            writer.close()
            server.should_exit = True
            await serving
        return first[:12], second[:12]

    assert asyncio.run(run()) == (b"HTTP/1.1 401", b"HTTP/1.1 200")


def test_a_reply_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeoutProtocol, "reading_seconds", 0.1)
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x" * 10_000_000, "more_body": True})
        ended.set()

    server = uvicorn.Server(
        uvicorn.Config(app, http=TimeoutProtocol, lifespan="off", log_config=None)
    )

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as bound, socket.socket() as peer:
            serving = asyncio.ensure_future(server._serve([bound]))
            peer.connect(bound.getsockname())
            peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 20)
            server.should_exit = True
            await serving

    asyncio.run(run())
    assert ended.is_set()


def test_service_is_not_loaded_with_the_library() -> None:
    code = "import sys, loca, loca.cli.main; loca.EASE; print(*(m for m in sys.modules if 'starlette' in m))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
    assert Service.__module__ == "loca.serving.app"
