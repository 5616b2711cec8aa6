"""The client against a service on a free port: its answers are the model's own, and its errors the library's."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

import loca
from loca.config.options import parse_recency
from loca.data.splits import Split
from loca.serving import client as client_module
from loca.serving.app import Service, Settings
from loca.serving.client import recency_text
from loca.serving.server import GracefulServer, bind

MODELS: dict[str, Callable[[], Any]] = {
    "ease": lambda: loca.EASE(l2=10),
    "mixture": lambda: loca.Loca(
        base=loca.EASE(l2=10),
        communities=loca.Mixtures(n=6, mixtures=2),
        combiner=loca.FixedShare(0.3),
    ),
    "kernel": lambda: loca.Loca(
        base=loca.EASE(l2=10),
        communities=loca.Kernels(n=4, answer_bandwidth=loca.Quantile(0.6)),
        combiner=loca.FixedShare(0.3),
    ),
    "blend": lambda: loca.Blend(
        parts=[
            loca.EASE(),
            loca.Popularity(),
            loca.Loca(
                base=loca.EASE(l2=10),
                communities=loca.Kernels(n=3),
                combiner=loca.FixedShare(0.2),
            ),
        ],
        columns=[(0, 1.0, 0.4), (1, 1.0, 0.2), (2, 0.0, 0.4)],
    ),
}
TOKEN = "a-token-for-tests"
RECENCIES = ["model", None, loca.Recency(2.5), loca.Recency(3, shape="power", floor=0.25)]


@pytest.fixture(scope="module")
def models(planted_split: Split) -> dict[str, Any]:
    train = planted_split.train.with_recency(loca.Recency(4))
    return {
        name: make().fit(train, validation=planted_split.validation)
        for name, make in MODELS.items()
    }


@pytest.fixture(scope="module")
def address(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(folder / name)
    settings = Settings(
        {name: str(folder / name) for name in models}, token=TOKEN, log_requests=False
    )
    service, started = Service(settings), threading.Event()
    service.store.load()
    server = GracefulServer(uvicorn.Config(service.app, log_config=None, lifespan="on"))
    server.on_started = started.set
    listening = bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    assert started.wait(30)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module", params=MODELS)
def pair(
    request: pytest.FixtureRequest, models: dict[str, Any], address: str
) -> Iterator[tuple[Any, loca.Client]]:
    """A model, and a client that is answered by its saved copy."""
    with loca.Client(address, model=request.param, token=TOKEN) as client:
        yield models[request.param], client


def check_lists(found: loca.Recommendations, expected: loca.Recommendations) -> None:
    assert found.users.tolist() == expected.users.tolist()
    assert found.items.tolist() == expected.items.tolist()
    assert found.titles is None or found.titles.tolist() == expected.titles.tolist()
    assert (found.titles is None) == (found.item_rows < 0).all()
    # Lists that are found together or alone differ in the order of sums: in the last digits of a float32.
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-5, atol=2e-6)


def near(value: Any) -> Any:
    """A JSON document whose numbers are compared in the digits that a float32 has."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("recency", RECENCIES, ids=str)
def test_users_get_the_lists_of_the_model(pair: tuple[Any, loca.Client], recency: Any) -> None:
    model, client = pair
    users = model.train_data_.users.values[:300].tolist()  # two batches
    check_lists(
        client.recommend(users, 7, recency=recency), model.recommend(users, 7, recency=recency)
    )


@pytest.mark.parametrize(
    ("who", "options"),
    [
        ("u007", {}),
        ([["i03", "i11", "i40"], ["i05"]], {}),
        ({"ann": ["i03", "i11"], "bob": ["i40", "i02", "i01"]}, {"hide_seen": False}),
        ([("i03", "i11")], {"recency": loca.Recency(1, floor=0.5)}),
        (np.array(["u001", "u002"]), {"only": ["i03", "i04", "i05"]}),
        (["u001", "u001", "u002"], {"never": {"i03", "i04"}}),
        (["u001", "u002", "u003"], {"candidates": {"u001": ["i03", "i08"], "u003": ["i09"]}}),
        (
            {"ann": ["i03"], "bob": ["i03"]},
            {"candidates": {"bob": ["i01", "i02", "i07"]}, "never": ["i02"]},
        ),
        (["u001", "nobody"], {"on_unknown": "popular"}),
        ([["i01", "no such item"], []], {"on_unknown": "skip"}),
        (["nobody"], {"on_unknown": "skip"}),
    ],
)
def test_requests_of_every_form_are_answered_as_by_the_model(
    pair: tuple[Any, loca.Client], who: Any, options: dict[str, Any]
) -> None:
    model, client = pair
    check_lists(client.recommend(who, 5, **options), model.recommend(who, 5, **options))


def test_nobody_gets_no_lists(pair: tuple[Any, loca.Client]) -> None:
    assert pair[1].recommend([], 5).items.shape == (0, 5)


def test_similar_items_are_those_of_the_model(pair: tuple[Any, loca.Client]) -> None:
    model, client = pair
    check_lists(client.similar_items("i03", 4), model.similar_items("i03", 4))
    check_lists(client.similar_items(["i03", "i11"]), model.similar_items(["i03", "i11"]))


@pytest.mark.parametrize(
    ("who", "options"),
    [
        ("u007", {}),
        (["u011"], {"n": 1}),
        ("u007", {"item": "i30", "n": 3}),
        ([["i03", "i11", "i40"]], {"n": 3, "recency": None}),
        ({"ann": ["i03", "i11", "i12"]}, {"item": "i03", "recency": loca.Recency(2)}),
    ],
)
def test_an_explanation_is_that_of_the_model(
    pair: tuple[Any, loca.Client], who: Any, options: dict[str, Any], address: str
) -> None:
    model, client = pair
    found, expected = client.explain(who, **options), model.explain(who, **options)
    assert found.to_json() == near(expected.to_json())
    assert found.to_polars().columns == expected.to_polars().columns
    assert str(found).splitlines()[:2] == str(expected).splitlines()[:2]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [1, 4, 59])
def test_an_explanation_has_everything_that_the_service_says(
    address: str, model: str, n: int
) -> None:
    history = [
        f"i{row:02}" for row in range(20, 50)
    ]  # as long as sums need to differ by their order
    body = {"items": history, "n": n, "model": model}
    said = httpx.post(
        f"{address}/v1/explain", json=body, headers={"authorization": f"Bearer {TOKEN}"}
    ).json()
    for name in ("model", "fingerprint", "counts", "notes"):
        del said[name]
    with loca.Client(address, model=model, token=TOKEN) as client:
        assert client.explain({"history": history}, n=n).to_json() == said


def test_communities_and_models_are_what_the_service_says(address: str) -> None:
    with loca.Client(address, model="mixture", token=TOKEN) as client:
        listed = client.communities()
        assert (listed["kind"], len(listed["communities"])) == ("mixtures", 6)
        assert len(client.community(2, n=3)["items"]) == 3
        assert [one["name"] for one in client.models()["models"]] == list(MODELS)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda client: client.recommend("nobody"), loca.DataError, "unknown user 'nobody'"),
        (
            lambda client: client.recommend(["u001", "nobody"]),
            loca.DataError,
            "unknown user 'nobody'",
        ),
        (lambda client: client.recommend([[]]), loca.DataError, "at least one item"),
        (
            lambda client: client.recommend("u001", only="i03"),
            loca.DataError,
            r"only: expected a list",
        ),
        (
            lambda client: client.recommend("u001", candidates=["i03"]),
            loca.DataError,
            "candidates: expected a dict",
        ),
        (lambda client: client.recommend(["u001", ["i03"]]), loca.DataError, "found both"),
        (lambda client: client.recommend({"ann": "i03"}), loca.DataError, "history of 'ann'"),
        (lambda client: client.recommend({"i03"}), loca.DataError, "found set"),
        (lambda client: client.recommend([None]), loca.DataError, "found NoneType"),
        (lambda client: client.recommend("u001", n=0), loca.ConfigError, "n: expected"),
        (lambda client: client.recommend("u001", n=1001), loca.DataError, "at most 1,000"),
        (
            lambda client: client.recommend("u001", recency="4"),
            loca.ConfigError,
            "recency: expected",
        ),
        (lambda client: client.recommend("u001", on_unknown="never"), loca.ConfigError, "never"),
        (
            lambda client: client.explain(["u001", "u002"]),
            loca.DataError,
            "expected one history, found 2",
        ),
        (
            lambda client: client.explain("u001", item="no such item"),
            loca.DataError,
            "unknown item",
        ),
        (lambda client: client.community(99), loca.DataError, "99"),
    ],
)
def test_what_is_refused_is_an_error_of_the_library(
    address: str, call: Callable[[loca.Client], Any], error: type[Exception], says: str
) -> None:
    with (
        loca.Client(address, model="kernel", token=TOKEN) as client,
        pytest.raises(error, match=says),
    ):
        call(client)


def test_a_wrong_model_token_or_address_is_one_clear_line(address: str) -> None:
    with pytest.raises(loca.DataError, match="unknown model 'kernal'; did you mean 'kernel'"):
        loca.Client(address, model="kernal", token=TOKEN).recommend("u001")
    for token in (None, "a-wrong-token-here"):
        with pytest.raises(loca.ConfigError, match="give token="):
            loca.Client(address, token=token).models()
    with (
        bind("127.0.0.1", 0) as free,
        pytest.raises(loca.DataError, match=r"no service can be reached .*loca serve"),
    ):
        loca.Client(f"http://127.0.0.1:{free.getsockname()[1]}").models()
    with pytest.raises(loca.ConfigError, match="url: expected an address"):
        loca.Client("http://[::1")
    with pytest.raises(loca.ConfigError, match="token: expected"):
        loca.Client(token="two\nlines")
    assert TOKEN not in repr(loca.Client(token=TOKEN))


class Scripted(http.server.BaseHTTPRequestHandler):
    """Replies to one request after another as the server's list says."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.got.append(body)
        status, document = self.server.replies.pop(0)(body)
        if status == 0:  # the connection ends without a reply
            self.close_connection = True
            return
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.send_header("retry-after", "7")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *values: Any) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.got, server.replies, server.waits = [], [], []
    monkeypatch.setattr(client_module.time, "sleep", server.waits.append)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with loca.Client(f"http://127.0.0.1:{server.server_port}") as server.client:
        yield server
    server.shutdown()
    thread.join()
    server.server_close()


def answers(body: Any) -> tuple[int, Any]:
    listed = [
        {"items": [{"item": one["user"], "score": 1.0, "rank": 1}]} for one in body["requests"]
    ]
    return 200, {"answers": listed}


def busy(body: Any) -> tuple[int, Any]:
    return 503, {
        "title": "Busy",
        "status": 503,
        "detail": "as many requests are waiting as may; try again",
    }


def half_busy(body: Any) -> tuple[int, Any]:
    status, document = answers(body)
    document["answers"][::2] = [{"problem": busy(body)[1]} for _ in document["answers"][::2]]
    return status, document


def test_a_busy_service_is_tried_again_after_the_time_that_it_names(scripted: Any) -> None:
    scripted.replies = [busy, busy, answers]
    assert scripted.client.recommend(["a"], 1).items.tolist() == [["a"]]
    assert scripted.waits == [7.0, 7.0]


def test_a_service_that_stays_busy_is_an_error(scripted: Any) -> None:
    scripted.replies = [busy] * 9
    with pytest.raises(loca.DataError, match="as many requests are waiting"):
        scripted.client.recommend(["a"], 1)
    assert len(scripted.replies) == 5


def test_only_those_that_a_full_queue_refused_are_sent_again(scripted: Any) -> None:
    scripted.replies = [half_busy, answers]
    assert scripted.client.recommend(["a", "b", "c"], 1).items.tolist() == [["a"], ["b"], ["c"]]
    assert [[one["user"] for one in body["requests"]] for body in scripted.got] == [
        ["a", "b", "c"],
        ["a", "c"],
    ]


def test_a_queue_that_stays_full_is_an_error(scripted: Any) -> None:
    scripted.replies = [half_busy] * 9
    with pytest.raises(loca.DataError, match="as many requests are waiting"):
        scripted.client.recommend(["a"], 1)
    assert len(scripted.replies) == 5


def test_batches_are_of_256_requests_and_half_a_megabyte(scripted: Any) -> None:
    scripted.replies = [answers] * 9
    scripted.client.recommend([f"u{row}" for row in range(600)], 1)
    assert [len(body["requests"]) for body in scripted.got] == [256, 256, 88]
    scripted.got.clear()
    scripted.client.recommend(list("abcdefg"), 1, never=["x" * 1000] * 200)
    assert [len(body["requests"]) for body in scripted.got] == [2, 2, 2, 1]


def vanish(body: Any) -> tuple[int, Any]:
    return 0, None


def test_a_connection_that_ends_is_tried_again_and_then_an_error(scripted: Any) -> None:
    scripted.replies = [vanish, answers, *[vanish] * 9]
    assert scripted.client.recommend(["a"], 1).items.tolist() == [["a"]]
    with pytest.raises(loca.DataError, match="ended before it answered"):
        scripted.client.recommend(["a"], 1)


def test_a_service_that_is_too_slow_is_an_error(scripted: Any) -> None:
    done = threading.Event()
    scripted.replies = [lambda body: (200, done.wait(10))]
    with pytest.raises(loca.DataError, match=r"no answer within 0\.05 s"):
        loca.Client(scripted.client.url, timeout=0.05).explain("a")
    done.set()


@pytest.mark.parametrize("document", [["no", "service"], {"error": "none"}])
def test_another_service_at_the_address_is_named_as_such(scripted: Any, document: Any) -> None:
    scripted.replies = [lambda body: (404, document)]
    with pytest.raises(loca.DataError, match="expected a LOCA service, found a reply 404"):
        scripted.client.explain("a")


@given(
    half_life=st.floats(1e-6, 1e12),
    unit=st.sampled_from(["positions", "time"]),
    shape=st.sampled_from(["exponential", "power"]),
    floor=st.floats(0, 1, exclude_max=True),
)
def test_a_recency_is_written_as_it_is_read(
    half_life: float, unit: Any, shape: Any, floor: float
) -> None:
    recency = loca.Recency(half_life, unit, shape, floor)
    assert parse_recency(recency_text(recency)) == recency
    assert parse_recency(recency_text(None)) is None


def test_without_httpx_a_client_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['httpx'] = None\n"
        "import loca\n"
        "try:\n"
        "    loca.Client()\n"
        "except loca.ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "the client needs httpx: pip install 'loca[serve]'\n", done.stderr
