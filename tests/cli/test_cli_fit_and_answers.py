"""`loca fit`, `loca recommend`, `loca explain` and `loca demo`: a model is saved once and answers many times."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from command_calls import DRIFTING, TINY, Call

import loca
import loca.paper.demo as demonstration


def test_fit_says_what_it_chose_and_saves_it(call: Call, tmp_path: Path) -> None:
    choice = ("--model", "loca-ease", "--set", "communities.n=3", "--choose", "base.l2=10,100")
    done = call("fit", "planted", *TINY, *choice, "--out", tmp_path / "m")
    assert done.code == 0
    assert "tried base.l2 10.0" in done.out
    model = loca.load(tmp_path / "m")
    assert isinstance(model, loca.Loca)
    assert f"base.l2 {model.base.l2}" in done.out  # type: ignore[attr-defined]
    assert str(model.locality_) in done.out
    explained = json.loads(call("explain", tmp_path / "m", "--user", "u003", "--json").out)[
        "answers"
    ][0]
    assert explained["locality"] == asdict(model.locality_)  # type: ignore[arg-type]
    assert model.train_data_ is not None
    assert (
        len(model.train_data_)
        == json.loads(call("data", "describe", "planted", *TINY, "--json").out)["ratings"]
    )


def test_fit_as_json_says_nothing_else(call: Call, tmp_path: Path) -> None:
    done = call("fit", "planted", *TINY, "--model", "ease", "--out", tmp_path / "m", "--json")
    assert done.err == ""
    found = json.loads(done.out)
    assert found["parameters"]["l2"] == 100.0
    assert 0 < found["validation"] < 1


def test_without_refit_the_histories_are_whole_all_the_same(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    ask = ("fit", ratings, "--model", "ease", "--quiet", "--out")
    assert call(*ask, tmp_path / "refitted").code == 0
    assert call(*ask, tmp_path / "as-chosen", "--no-refit").code == 0
    refitted, selected = (
        loca.load(tmp_path / "refitted"),
        loca.load(tmp_path / "as-chosen"),
    )
    assert refitted.train_data_ is not None
    assert selected.train_data_ is not None
    assert len(refitted.train_data_) == len(selected.train_data_) == 240
    assert not np.array_equal(
        refitted.score(refitted.train_data_.histories()),
        selected.score(refitted.train_data_.histories()),
    )


def test_fit_without_validation_chooses_nothing(call: Call, tmp_path: Path, ratings: Path) -> None:
    ask = (
        "fit",
        ratings,
        "--model",
        "ease",
        "--validation",
        "0",
        "--quiet",
        "--out",
        tmp_path / "m",
    )
    assert "before the refit" not in call(*ask).out
    assert "choosing needs held-out items" in call(*ask, "--choose", "l2=1,2").mistake


def test_a_settings_file_names_the_model(call: Call, tmp_path: Path, ratings: Path) -> None:
    (tmp_path / "fit.toml").write_text(
        '[fit]\nmodel = "ease"\n[ease]\nl2 = 7\n[recency]\nhalf_life = 3\n'
    )
    call("fit", ratings, "--config", tmp_path / "fit.toml", "--quiet", "--out", tmp_path / "m")
    model = loca.load(tmp_path / "m")
    assert isinstance(model, loca.EASE)
    assert model.l2 == 7
    assert model.train_data_ is not None
    assert model.train_data_.recency == loca.Recency(3)


@pytest.mark.parametrize(
    ("asked", "recency"),
    [
        ((), loca.Recency.per_position(0.8)),
        (("--recency", "none"), None),
        (("--recency", "4"), loca.Recency(4)),
    ],
)
def test_a_model_of_next_items_answers_as_it_was_trained_unless_told_otherwise(
    call: Call, tmp_path: Path, asked: tuple[str, ...], recency: loca.Recency | None
) -> None:
    call(
        "fit",
        "planted",
        *DRIFTING,
        "--model",
        "next-ease",
        *asked,
        "--out",
        tmp_path / "m",
        "--quiet",
    )
    known = loca.load(tmp_path / "m").train_data_
    assert known is not None
    assert known.recency == recency


def test_auto_told_not_to_weigh_weighs_nothing(call: Call, tmp_path: Path) -> None:
    model = ("--set", "planted.users=200", "--model", "auto", "--trials", "2", "--recency", "none")
    call("fit", "planted", *DRIFTING, *model, "--no-refit", "--out", tmp_path / "m", "--quiet")
    known = loca.load(tmp_path / "m").train_data_
    assert known is not None
    assert known.recency is None


@pytest.mark.parametrize("refit", ["--refit", "--no-refit"])
def test_a_recency_chosen_on_held_out_items_is_saved_with_the_model(
    call: Call, tmp_path: Path, refit: str
) -> None:
    ask = (
        "fit",
        "planted",
        *DRIFTING,
        "--model",
        "ease",
        "--recency",
        "auto",
        refit,
        "--out",
        tmp_path / "m",
    )
    said = json.loads(call(*ask, "--json").out)
    known = loca.load(tmp_path / "m").train_data_
    assert known is not None
    assert known.recency is not None
    assert said["recency"] == said["recency_choice"]["recency"] == asdict(known.recency)
    assert said["validation"] == said["recency_choice"]["score"]
    assert said["recency_choice"]["score"] > said["recency_choice"]["score_without"]
    assert len(known) > 600 * 22, "the held-out items are known too"
    assert f"recency chosen: {known.recency}; " in call(*ask, "--quiet").out


def test_auto_recency_needs_held_out_items_and_is_chosen_by_fitting_alone(
    call: Call, tmp_path: Path, ratings: Path, model_folder: Path
) -> None:
    refused = call(
        "fit", ratings, "--recency", "auto", "--validation", "0", "--out", tmp_path / "m"
    ).mistake
    assert (
        refused
        == "--recency: auto is chosen on held-out items; expected --validation of at least 1, found 0"
    )
    for ask in (
        ("recommend", model_folder, "--user", "u003"),
        ("explain", model_folder, "--user", "u003"),
        ("demo",),
    ):
        assert (
            "recency: auto is chosen by loca fit and loca compare"
            in call(*ask, "--recency", "auto").mistake
        )


def test_a_history_is_weighed_by_shape_and_floor(call: Call, model_folder: Path) -> None:
    def scores(recency: str) -> list[float]:
        done = call(
            "recommend", model_folder, "--history", "i03,i08,i20", "--recency", recency, "--json"
        )
        return [one["score"] for one in json.loads(done.out)["answers"][0]["items"]]

    assert (
        len({tuple(scores(text)) for text in ("0.5", "0.5:power", "0.5::0.4", "0.5:power:0.4")})
        == 4
    )


def test_the_model_is_named_by_set_before_the_option_before_the_file(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    (tmp_path / "fit.toml").write_text('[fit]\nmodel = "ease"\n')

    def fitted(*options: object) -> str:
        done = call(
            "fit",
            ratings,
            "--config",
            tmp_path / "fit.toml",
            "--json",
            "--out",
            tmp_path / "m",
            *options,
        )
        return str(json.loads(done.out)["model"])

    assert fitted() == "ease"
    assert fitted("--model", "popularity") == "popularity"
    assert fitted("--set", "fit.model=popularity") == "popularity"
    several = ("--model", "loca-ease", "--set", "fit.model=ensemble-ease", "--set", "models=2")
    assert fitted(*several) == "ensemble-ease"
    assert (
        "unknown model 'easy'"
        in call("fit", ratings, "--out", tmp_path / "m", "--set", "fit.model=easy").mistake
    )


def test_fit_has_no_test_items(call: Call, tmp_path: Path, ratings: Path) -> None:
    ask = ("fit", ratings, "--model", "ease", "--out", tmp_path / "m")
    assert (
        "split.test: loca fit holds out nothing for test"
        in call(*ask, "--set", "split.test=3").mistake
    )
    (tmp_path / "study.toml").write_text("[split]\ntest = 3\n")
    shared = call(*ask, "--config", tmp_path / "study.toml")
    assert shared.code == 0
    assert "study.toml: split.test is for loca compare" in shared.err
    assert "split.test" not in call(*ask).err


def test_the_refit_is_spoken_of_only_where_there_was_one(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    ask = ("fit", ratings, "--model", "ease", "--quiet", "--out", tmp_path / "m")
    assert "validation NDCG@100, before the refit: " in call(*ask).out
    once = call(*ask, "--no-refit").out
    assert "validation NDCG@100: " in once
    assert "(used for choosing; not a test score)" in once


def test_a_folder_that_cannot_take_the_model_is_refused_before_training(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "loca.cli.options.planted_communities", lambda **given: pytest.fail("data was read")
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert "not a loca model" in call("fit", "planted", "--out", tmp_path / "mine").mistake
    (tmp_path / "file").write_text("")
    assert "found a file" in call("fit", "planted", "--out", tmp_path / "file").mistake
    assert (
        "cannot be saved into"
        in call("fit", "planted", "--out", tmp_path / "file" / "deeper").mistake
    )
    monkeypatch.setattr(
        "os.listdir", lambda path: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    assert "Permission denied" in call("fit", "planted", "--out", tmp_path / "mine").mistake


def test_a_full_disk_while_saving_is_one_line_and_keeps_the_old_model(
    call: Call, tmp_path: Path, ratings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ("fit", ratings, "--model", "ease", "--quiet", "--out", tmp_path / "m")
    assert call(*ask).code == 0
    before = {one.name: one.read_bytes() for one in (tmp_path / "m").iterdir()}

    def no_room(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == tmp_path / "m":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_room)
    mistake = call(*ask, "--set", "l2=5").mistake
    assert "No space left on device; the model that was there stays" in mistake
    assert {one.name: one.read_bytes() for one in (tmp_path / "m").iterdir()} == before


def test_recommend_for_known_users_hides_what_they_have(call: Call, model_folder: Path) -> None:
    done = call("recommend", model_folder, "--user", "u003", "--user", "u007", "-n", "4", "--json")
    assert done.err == ""
    answers = json.loads(done.out)["answers"]
    assert [one["user"] for one in answers] == ["u003", "u007"]
    known = loca.load(model_folder).train_data_
    assert known is not None
    for one in answers:
        listed = [row["item"] for row in one["items"]]
        assert len(listed) == 4
        assert not set(listed) & set(known.items.ids(known.items_of(known.users.row(one["user"]))))
        assert [row["rank"] for row in one["items"]] == [1, 2, 3, 4]
    text = call("recommend", model_folder, "--user", "u003", "-n", "2").out
    assert text.startswith("For u003\n")
    assert answers[0]["items"][0]["title"] in text


def test_a_history_may_be_ids_or_titles(call: Call, model_folder: Path) -> None:
    known = loca.load(model_folder).train_data_
    assert known is not None
    titles = ",".join([known.items.label(3), known.items.label(8).upper()])
    by_id = json.loads(call("recommend", model_folder, "--history", "i03,i08", "--json").out)
    by_title = json.loads(call("recommend", model_folder, "--history", titles, "--json").out)
    assert by_id["answers"] == by_title["answers"]
    assert {"i03", "i08"}.isdisjoint(one["item"] for one in by_id["answers"][0]["items"])


def test_only_and_never_bound_the_list(call: Call, model_folder: Path) -> None:
    ask = ("recommend", model_folder, "--history", "i03", "--json")
    few = json.loads(call(*ask, "--only", "i01,i02,i03", "--never", "i02").out)["answers"][0][
        "items"
    ]
    assert [one["item"] for one in few] == ["i01"]
    none = call("recommend", model_folder, "--history", "i03", "--only", "i03")
    assert none.out == "For history: nothing is left to recommend\n"


def test_recency_weighs_the_order_of_a_history(call: Call, model_folder: Path) -> None:
    def best(history: str, *options: str) -> list[str]:
        found = json.loads(
            call("recommend", model_folder, "--history", history, "--json", *options).out
        )
        return [one["item"] for one in found["answers"][0]["items"]]

    assert best("i03,i08,i20") == best("i20,i08,i03")
    assert best("i03,i08,i20", "--recency", "0.2") != best("i20,i08,i03", "--recency", "0.2")
    refused = call("recommend", model_folder, "--history", "i03", "--recency", "30d").mistake
    assert (
        refused == "--history: has no times to be weighed by; say --recency 4 (positions) or none"
    )
    assert call("recommend", model_folder, "--user", "u003", "--recency", "30d").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "who asks? expected one of --user ID, --history a,b,c, --all"),
        (["--user", "u003", "--history", "i01"], "who asks?"),
        (["--user", "u0003"], "--user: unknown user 'u0003'; close ones are "),
        (["--history", "i3,i08"], "--history: unknown item 'i3'; close ones are "),
        (["--history", ""], "--history: expected at least one item id or title, found ''"),
        (["--history", " , "], "--history: expected at least one item id or title, found ' , '"),
        (
            ["--user", "u003", "--only", ","],
            "--only: expected at least one item id or title, found ','",
        ),
        (
            ["--user", "u003", "--never", ""],
            "--never: expected at least one item id or title, found ''",
        ),
        (["--user", "u003", "--never", "x99"], "--never: unknown item 'x99'"),
        (["--user", "u003", "-n", "0"], "-n: expected a list length of 1 or more, found 0"),
        (["--user", "u003", "--recency", "soon"], "--recency: expected positions"),
    ],
)
def test_a_wrong_question_is_refused(
    call: Call, model_folder: Path, options: list[str], message: str
) -> None:
    assert message in call("recommend", model_folder, *options).mistake


def test_a_missing_foreign_or_cut_model_folder_is_refused(
    call: Call, model_folder: Path, tmp_path: Path
) -> None:
    assert "no loca model here" in call("recommend", tmp_path / "none", "--user", "u003").mistake
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.json").write_text('{"format": "other"}')
    assert "not a loca model" in call("explain", tmp_path / "foreign", "--user", "u003").mistake
    cut = shutil.copytree(model_folder, tmp_path / "cut")
    largest = max(cut.iterdir(), key=lambda one: one.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:100])
    assert str(cut) in call("recommend", cut, "--user", "u003").mistake


def test_a_model_without_ids_is_asked_from_python(
    call: Call, tmp_path: Path, planted_split: loca.Split
) -> None:
    loca.EASE().fit(planted_split.train.matrix()).save(tmp_path / "m")
    assert (
        "fitted on a bare matrix and knows no ids"
        in call("recommend", tmp_path / "m", "--user", "1").mistake
    )


def test_explain_names_the_communities_and_their_shares(call: Call, model_folder: Path) -> None:
    done = call("explain", model_folder, "--user", "u003", "--json")
    assert done.err == ""
    (answer,) = json.loads(done.out)["answers"]
    shares = [one["weight"] for one in answer["communities"]] + [answer["global"]["weight"]]
    assert sum(shares) == pytest.approx(1)
    assert answer["global"]["weight"] == pytest.approx(0.2)
    assert answer["communities"][0]["known_for"][0]["lift"] >= 1
    listed = json.loads(call("recommend", model_folder, "--user", "u003", "-n", "5", "--json").out)
    assert [one["item"] for one in answer["items"]] == [
        one["item"] for one in listed["answers"][0]["items"]
    ]
    text = call("explain", model_folder, "--history", "i03,i08", "-n", "2").out
    assert text.startswith("For history\nHistory of 2 items, newest first: ")


def test_explain_shows_a_history_in_its_own_order(call: Call, model_folder: Path) -> None:
    known = loca.load(model_folder).train_data_
    assert known is not None

    def history(*who: str) -> list[str]:
        (answer,) = json.loads(call("explain", model_folder, *who, "--json").out)["answers"]
        return [one["item"] for one in answer["history"]]

    oldest_first = list(known.items.ids(known.items_of(known.users.row("u003"))))
    assert oldest_first != sorted(oldest_first)
    assert history("--user", "u003") == oldest_first
    assert history("--history", "i20,i03,i08") == ["i20", "i03", "i08"]
    assert history("--history", "i20,i03,i08", "--recency", "4") == ["i20", "i03", "i08"]
    newest_first = ", ".join(known.items.label(row) for row in (8, 3, 20))
    text = call("explain", model_folder, "--history", "i20,i03,i08").out
    assert text.splitlines()[1] == f"History of 3 items, newest first: {newest_first}"
    told = " ".join(re.sub(r"[│\n]", " ", call("explain", "--help").out).split())
    assert "the last one is the newest" in told


def test_a_linear_model_explains_one_item_by_what_the_history_adds(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    call("fit", ratings, "--model", "ease", "--quiet", "--out", tmp_path / "m")
    model = loca.load(tmp_path / "m")
    known = model.train_data_
    assert isinstance(model, loca.EASE)
    assert known is not None
    user, item = known.users.ids([0])[0], known.items.ids([5])[0]
    (answer,) = json.loads(
        call("explain", tmp_path / "m", "--user", user, "--item", item, "--json").out
    )["answers"]
    (explained,) = answer["items"]
    assert explained["item"] == item
    assert answer["is_exact"]
    added = {one["item"]: one["contribution"] for one in explained["because"]}
    row = known.histories(np.array([0]))
    expected = {
        known.items.ids([i])[0]: model.weights_[i, 5] * w
        for i, w in zip(row.indices, row.data, strict=True)
    }
    assert added == pytest.approx({one: figure for one, figure in expected.items() if figure})
    assert sum(added.values()) == pytest.approx(explained["score"], abs=1e-5)
    wrong = call("explain", tmp_path / "m", "--user", user, "--item", "nosuch").mistake
    assert "nosuch" in wrong
    both = ",".join(str(one) for one in known.items.ids([5, 6]))
    assert (
        "expected one item, found 2"
        in call("explain", tmp_path / "m", "--user", user, "--item", both).mistake
    )


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    vae, ease = loca.MultVAE(latent=4, epochs=2), loca.EASE(l2=100.0)
    small = {
        "popularity": [loca.Popularity()],
        "ease": [ease],
        "mult-vae": [vae],
        "ensemble-ease": [loca.Ensemble(base=ease, models=3)],
        "ensemble-vae": [loca.Ensemble(base=vae, models=2)],
        "loca-vae": [loca.Loca(base=vae, communities=loca.Kernels(n=2))],
        "loca-ease": [loca.Loca(base=ease, communities=loca.Kernels(n=3))],
    }
    monkeypatch.setattr(demonstration, "demo_models", lambda *given: small)


@pytest.mark.usefixtures("small_demo")
def test_the_demo_ends_with_commands_that_work_when_pasted(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("demo", "--users", "150")
    assert done.code == 0
    assert "loca-ease minus ease: " in done.out
    assert "loca-ease minus ensemble-ease: " in done.out
    assert "knowing who belongs where" in done.out
    commands = [
        line
        for line in Path("loca-demo/NEXT.md").read_text().splitlines()
        if line.startswith("loca ")
    ]
    assert len(commands) == 7
    for command in commands:
        assert command in done.out
        small = (
            ("--set", "planted.users=200", "--set", "loca-ease.communities.n=3")
            if "planted --mod" in command
            else ()
        )
        assert call(*shlex.split(command)[1:], *small).code == 0, command


@pytest.mark.usefixtures("small_demo")
def test_the_demo_speaks_json(call: Call, tmp_path: Path) -> None:
    done = call("demo", "--users", "150", "--out", tmp_path / "demo", "--json")
    assert done.err == ""
    assert json.loads(done.out)["bound"]["score"] > 0


def test_the_demo_refuses_what_cannot_work(call: Call, tmp_path: Path) -> None:
    assert "users: expected at least 100" in call("demo", "--users", "10").mistake
    (tmp_path / "file").write_text("")
    assert "found a file" in call("demo", "--out", tmp_path / "file").mistake
    assert "recency: expected positions" in call("demo", "--recency", "soon").mistake


def test_the_demo_refuses_a_foreign_model_folder_before_any_work(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loca, "planted_communities", lambda **given: pytest.fail("work was done"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.tex").write_text("years of work")
    assert "not a loca model" in call("demo", "--out", tmp_path).mistake


@pytest.mark.usefixtures("small_demo")
def test_the_demo_weighs_histories_when_asked_to(call: Call, tmp_path: Path) -> None:
    assert (
        call("demo", "--users", "150", "--recency", "4", "--out", tmp_path / "demo", "--quiet").code
        == 0
    )
    known = loca.load(tmp_path / "demo" / "model").train_data_
    assert known is not None
    assert known.recency == loca.Recency(4)


def test_update_takes_new_interactions_into_the_saved_model(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    assert call("fit", ratings, "--model", "ease", "--quiet", "--out", tmp_path / "m").code == 0
    more = tmp_path / "more.csv"
    more.write_text("who,what,stars,when\nu1,i9,5,100\nnew,i2,5,101\nnew,tea,5,102\nu1,i4,1,103\n")
    ask = ("update", tmp_path / "m", more, "--user-column", "who", "--item-column", "what")
    ask = (*ask, "--rating-column", "stars", "--time-column", "when", "--min-rating", "3")
    beside = call(*ask, "--out", tmp_path / "beside")
    assert beside.code == 0
    assert f"EASE saved to {tmp_path / 'beside'}" in beside.out
    assert "new: interactions 2, users 1, items 1" in beside.out
    assert "known already: interactions 1; they count at their newest time" in beside.out
    assert "now: interactions 242, users 31, items 13; settings stay as they were" in beside.out
    untouched = loca.load(tmp_path / "m").train_data_
    assert untouched is not None
    assert untouched.n_users == 30
    document = json.loads(call(*ask, "--json").out)
    assert document["new"] == {"interactions": 2, "users": 1, "items": 1}
    assert document["known_already"] == 1
    assert document["folder"] == str(tmp_path / "m")
    model, other = loca.load(tmp_path / "m"), loca.load(tmp_path / "beside")
    assert (
        model.recommend(["u1", "new"]).items.tolist()
        == other.recommend(["u1", "new"]).items.tolist()
    )
    listed = json.loads(
        call("recommend", tmp_path / "m", "--user", "new", "-n", "20", "--json").out
    )["answers"][0]
    assert not {"i2", "tea"} & {one["item"] for one in listed["items"]}


def test_update_says_what_a_network_leaves_out(call: Call, tmp_path: Path, ratings: Path) -> None:
    small = ("--set", "latent=4", "--set", "epochs=2", "--validation", "0")
    assert (
        call("fit", ratings, "--model", "mult-vae", *small, "--quiet", "--out", tmp_path / "m").code
        == 0
    )
    (tmp_path / "more.csv").write_text("user,item\nu1,i9\nu1,tea\n")
    done = call("update", tmp_path / "m", tmp_path / "more.csv", "--epochs", "1")
    assert "left out: interactions 1, with items that only a fit takes in" in done.out
    assert "they count as newer than all known ones" in done.err


def test_an_update_that_is_refused_leaves_the_model_alone(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    folder = tmp_path / "m"
    assert call("fit", ratings, "--model", "popularity", "--quiet", "--out", folder).code == 0
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("user,item,time\nu1,i9,100\n")
    bad.write_text("user,item,time\nu1,i9,soon\n")
    refused = {
        "there is no such file": ("update", folder, tmp_path / "none.csv"),
        "soon": ("update", folder, bad, "--time-column", "time"),
        "no column 'when'": ("update", folder, good, "--time-column", "when"),
        "--epochs: expected a whole number ≥ 1, found 0": ("update", folder, good, "--epochs", "0"),
        "no loca model here": ("update", tmp_path / "nothing", good),
        "expected a folder to save into, found a file": ("update", folder, good, "--out", good),
    }
    for problem, words in refused.items():
        assert problem in call(*words).mistake
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before
    loca.Popularity().fit(loca.read_interactions(ratings).matrix()).save(tmp_path / "bare")
    assert "holds no training data to add to" in call("update", tmp_path / "bare", good).mistake


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_place_that_nobody_can_write_is_refused_at_once_with_the_true_reason(call: Call) -> None:
    refused = "/proc/x: cannot be written: No such file or directory; choose another folder"
    for command in ("fit", "plan"):
        assert call(command, "planted", "--quiet", "--out", "/proc/x").mistake == refused
    study = (
        "tune",
        "planted",
        *TINY,
        "--model",
        "ease",
        "--trials",
        "1",
        "--quiet",
        "--study",
        "/proc/x.db",
    )
    assert "/proc/x.db: cannot be written" in call(*study).mistake
