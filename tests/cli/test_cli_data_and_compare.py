"""`loca data describe` and `loca compare`, with good and with bad input."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from command_calls import DRIFTING, TINY, Call

KERNELS = ("--set", "loca-ease.communities=kernels")
NO_NETWORKS = (
    "--models",
    "popularity,ease,ensemble,loca-ease",
    "--set",
    "loca-ease.communities.n=3",
)


def test_describe_counts_a_file(call: Call, ratings: Path) -> None:
    done = call("data", "describe", ratings, "--json")
    assert done.err == ""
    found = json.loads(done.out)
    assert (found["users"], found["items"], found["ratings"]) == (30, 12, 240)
    assert found["sparsity"] == pytest.approx(100 * (1 - 240 / 360))
    text = call("data", "describe", ratings)
    assert "sparsity" in text.out
    assert "33.33 %" in text.out


def test_describe_says_which_columns_are_taken_how_ratings_lie_and_when(
    call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "films.csv"
    times = (874724710, 1476640644, 900000000, 900000001)
    rows = [
        f"u{n},i{n},{(1, 4, 5, 5)[n]},{time},x,2020-01-0{n + 1}" for n, time in enumerate(times)
    ]
    path.write_text("userId,movieId,rating,timestamp,colour,seen\n" + "\n".join(rows) + "\n")
    lines = {
        line[:36].strip(): line[38:] for line in call("data", "describe", path).out.splitlines()
    }
    assert lines["columns"] == "user = userId, item = movieId, rating = rating, time = timestamp"
    assert lines["columns not used"] == "colour, seen"
    assert lines["values of ratings"] == "1 to 5, 3 different, on a scale of 1 to 5"
    low = "25 % of the ratings, below 3; --min-rating 4 takes only those above the middle"
    assert lines["below the middle of the scale"] == low
    assert lines["time"] == "1997-09-20 to 2016-10-16"
    found = json.loads(call("data", "describe", path, "--json").out)
    assert found["columns"]["unused"] == ["colour", "seen"]
    assert (found["rating_values"]["low_share"], found["dates"]) == (
        0.25,
        ["1997-09-20", "2016-10-16"],
    )
    note = "films.csv: 25 % of the ratings are below 3, the middle of their scale (1 to 5), and count as likes"
    advice = "; --min-rating 4 takes only those above the middle\n"
    ask = ("fit", path, "--model", "popularity", "--validation", 0, "--out", tmp_path / "m")
    assert note + advice in call(*ask).err
    assert call(*ask, "--min-rating", 4).err.count("count as likes") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fit", "planted", "--model", "ease", "--model", "mult-vae", "--out", "m"),
            "--model: expected once, found 2",
        ),
        (
            ("compare", "planted", "--models", "ease", "--models", "slim"),
            "--models: expected once, found 2 times; name",
        ),
        (
            ("data", "describe", "planted", "--seed", "1", "--seed", "1"),
            "--seed: expected once, found 2 times",
        ),
    ],
)
def test_an_option_that_is_given_twice_is_refused(
    call: Call, words: tuple[str, ...], message: str
) -> None:
    assert message in call(*words).mistake


def test_what_is_chosen_for_a_base_is_chosen_for_the_models_over_it(call: Call) -> None:
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "ease,ensemble,loca-ease",
        "--set",
        "loca-ease.communities.n=3",
    )
    for choice in ("ease.l2=5,50", "base.l2=5,50"):
        found = json.loads(call(*ask, "--choose", choice, "--at", "5", "--json").out)["models"]
        tried = {one["name"]: [other["settings"] for other in one["tried"]] for one in found}
        over = [{"base.l2": 5.0}, {"base.l2": 50.0}]
        alone = [{"l2": 5.0}, {"l2": 50.0}] if choice.startswith("ease") else [{}]
        assert tried == {"ease": alone, "ensemble-ease": over, "loca-ease": over}
    own = json.loads(
        call(*ask, "--set", "ease.l2=5", "--set", "loca-ease.base.l2=7", "--at", "5", "--json").out
    )
    assert [
        one["parameters"].get("l2", one["parameters"].get("base.l2")) for one in own["models"]
    ] == [5.0, 7.0, 7.0]


NETWORKS = (
    "--set",
    "base.latent=4",
    "--set",
    "base.batch_size=50",
    "--set",
    "base.learning_rate=0.02",
)


def test_arms_over_a_network_are_compared_at_equal_epochs(call: Call, tmp_path: Path) -> None:
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "ensemble,dealt,mixture-vae",
        "--at",
        "5",
        *NETWORKS,
    )
    ask += (
        "--set",
        "mixture-vae.communities.n=2",
        "--set",
        "mixture-vae.base.epochs=3",
        "--set",
        "ensemble-vae.base.epochs=2",
    )
    ask += ("--set", "base.evaluate_every=9", "--same-epochs", "--out", str(tmp_path / "out"))
    text = call(*ask).out
    assert "ensemble-vae, 3 epochs" in text
    assert "mixture-vae − ensemble-vae, 3 epochs" in text
    assert "What a local model gains over the dealt form is locality" in text
    found = json.loads(call(*ask, "--resume", "--json").out)
    names = ["ensemble-vae", "dealt-vae", "mixture-vae", "ensemble-vae, 3 epochs"]
    assert [one["name"] for one in found["models"]] == names
    assert found["models"][1]["parameters"]["communities.finder.n"] == 2
    assert [one["parameters"]["base.epochs"] for one in found["models"]] == [2, 3, 3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--models", "ease,dealt"],
            "the model 'dealt' is the control of a local model; "
            "ask for one too, of mixture-vae, loca-vae, ",
        ),
        (["--models", "dealt,loca-slim"], "the model 'dealt' is the control of a local model"),
        (
            ["--set", "compare.same_epochs=maybe"],
            "same_epochs: expected true or false, found 'maybe'",
        ),
        (
            ["--models", "mixture-ease", "--set", "communities.mixtures=99"],
            "mixtures: expected at most as many as communities, 40",
        ),
        (
            ["--models", "loca-ease", "--set", "communities=kernel"],
            "loca-ease.communities: unknown kind 'kernel'; did you mean 'kernels'",
        ),
    ],
)
def test_wrong_controls_are_refused(call: Call, options: list[str], message: str) -> None:
    assert message in call("compare", "planted", *TINY, *options).mistake


def test_describe_knows_the_built_in_data_by_its_seed(call: Call) -> None:
    first, again, other = (
        json.loads(call("data", "describe", "planted", "--json", *TINY, "--seed", seed).out)
        for seed in (1, 1, 2)
    )
    assert first["users"] == 150
    assert first == again
    assert first["ratings"] != other["ratings"] or first["concentration"] != other["concentration"]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", [], "ratings.csv: the file is empty"),
        ("user,item,time\na,b,1\na,c\n", [], "line 3: expected 3 fields split by ',', found 2"),
        ("user,item,time\na,b,1\na,c,soon\n", [], "line 3: expected a number"),
        (
            "user,item,time\na,b,1\n",
            ["--user-column", "usr"],
            "no column 'usr'; the columns are user, item, time",
        ),
        ("user,item,time\na,b,1\n", ["--separator", ";"], "';'"),
        (
            "user,item,time\na,b,1\n",
            ["--min-user-interactions", "5"],
            "no user left after filtering",
        ),
        ("user,item,rating\na,b,1\n", ["--min-rating", "3"], "no user left after filtering"),
        (
            "user,item,time\na,b,1\n",
            ["--layout", "movielens-1n"],
            "unknown layout 'movielens-1n'; did you mean",
        ),
        ("user,item,time\na,b,1\n", ["--preset", "amusik"], "unknown preset 'amusik'"),
        (
            "user,item,time\na,b,1\n",
            ["--set", "data.seperator=;"],
            "unknown option 'seperator' for data; did you mean",
        ),
        (
            "user,item,time\na,b,1\n",
            ["--set", "split.test=3"],
            "'split' has no part in this command",
        ),
        (
            "user,item,time\na,b,1\n",
            ["--set", "planted.users=3"],
            "the section planted is for the data 'planted'",
        ),
    ],
)
def test_bad_files_and_options_get_one_clear_line(
    call: Call, tmp_path: Path, content: str, options: list[str], message: str
) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text(content)
    assert message in call("data", "describe", path, "--quiet", *options).mistake


def test_a_missing_file_is_refused_with_its_neighbours(call: Call, ratings: Path) -> None:
    assert (
        "did you mean 'ratings.csv'"
        in call("data", "describe", ratings.with_name("rating.csv")).mistake
    )


def test_compare_prints_every_model_and_difference(call: Call) -> None:
    done = call(
        "compare",
        "planted",
        *TINY,
        *NO_NETWORKS,
        "--choose",
        "loca-ease.base.l2=10,100",
        "--at",
        "5,10",
    )
    assert done.code == 0
    assert "train: " in done.err
    for name in ("popularity", "ease", "ensemble-ease", "loca-ease"):
        assert f"\n{name} " in done.out
    assert "loca-ease − ensemble-ease" in done.out
    assert "ensemble-ease chose base.l2 " in done.out
    assert "NDCG@10" in done.out


def test_compare_as_json_says_nothing_else(call: Call, tmp_path: Path) -> None:
    done = call(
        "compare",
        "planted",
        *TINY,
        *NO_NETWORKS,
        "--json",
        "--out",
        tmp_path / "results",
        "--no-refit",
    )
    assert done.err == ""
    found = json.loads(done.out, parse_constant=pytest.fail)
    assert found["refit"] is False
    assert [one["name"] for one in found["models"]] == [
        "popularity",
        "ease",
        "ensemble-ease",
        "loca-ease",
    ]
    assert found["models"][2]["parameters"]["models"] == 3
    written = json.loads((tmp_path / "results" / "comparison.json").read_text())
    assert written["differences"] == found["differences"]
    pairs = list(csv.DictReader((tmp_path / "results" / "differences.csv").open()))
    assert [float(one["wilcoxon_p_holm"]) for one in pairs] == [
        d["wilcoxon_p_holm"] for d in found["differences"]
    ]
    rows = list(csv.DictReader((tmp_path / "results" / "comparison.csv").open()))
    assert {row["model"] for row in rows} == {"popularity", "ease", "ensemble-ease", "loca-ease"}


def test_compare_on_a_terminal_draws_tables(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = call(
        "compare",
        "planted",
        *TINY,
        "--models",
        "popularity,ease",
        "--choose",
        "ease.l2=1,100",
        "--quiet",
    )
    assert done.err == ""
    assert "┃" in done.out
    assert "ease chose l2" in done.out
    alone = call(
        "compare", "planted", *TINY, "--models", "ensemble-ease", "--set", "models=2", "--quiet"
    )
    assert "difference" not in alone.out


def test_a_settings_file_says_everything(call: Call, tmp_path: Path, ratings: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        '[compare]\nmodels = ["popularity", "ease"]\nat = [3, 5]\ncontrol = "popularity"\nseed = 3\n'
        "[split]\ntest = 2\nvalidation = 1\n[recency]\nhalf_life = 2\n[data]\nmin_user_interactions = 2\n"
        '[ease]\nl2 = [1, 10]\n[fit]\nmodel = "ease"\n[mult-vae]\nlatent = 4\n'
    )
    found = json.loads(call("compare", ratings, "--config", study, "--json").out)
    assert found["control"] == "popularity"
    assert [one["settings"] for one in found["models"][1]["tried"]] == [{"l2": 1.0}, {"l2": 10.0}]
    assert "ndcg@3" in found["models"][0]["metrics"]
    by_command = call("compare", ratings, "--config", study, "--json", "--set", "ease.l2=7")
    assert json.loads(by_command.out)["models"][1]["parameters"]["l2"] == 7.0
    described = call("data", "describe", ratings, "--config", study, "--json")
    assert json.loads(described.out)["users"] == 30


def test_models_are_named_by_set_before_options_before_the_file(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    study = tmp_path / "study.toml"
    study.write_text('[compare]\nmodels = ["popularity"]\n[split]\ntest = 2\n')

    def compared(*options: object) -> list[str]:
        done = call("compare", ratings, "--config", study, "--json", *options)
        return [one["name"] for one in json.loads(done.out)["models"]]

    told = ("--set", 'compare.models=["ease", "ensemble-ease"]', "--set", "ensemble-ease.models=2")
    assert compared() == ["popularity"]
    assert compared("--models", "ease") == ["ease"]
    assert compared(*told) == ["ease", "ensemble-ease"]
    assert compared("--models", "popularity,ease", *told) == ["ease", "ensemble-ease"]


def test_a_single_test_user_gets_a_table_and_a_reason(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ratings.csv"
    rows = [
        f"u{user},i{(user + place) % 5},{place}"
        for user in range(6)
        for place in range(5 if user == 0 else 1)
    ]
    path.write_text("user,item,time\n" + "\n".join(rows) + "\n")
    ask = (
        "compare",
        path,
        "--models",
        "popularity,ease",
        "--test",
        "1",
        "--validation",
        "1",
        "--at",
        "2",
        "--quiet",
    )
    reason = "no differences between the models: they need at least 2 test users, found 1"
    done = call(*ask)
    assert done.code == 0
    assert "\nease " in done.out
    assert reason in done.out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    drawn = call(*ask)
    assert "┃" in drawn.out
    assert reason in drawn.out


def test_recency_changes_the_answers(call: Call) -> None:
    ask = ("compare", "planted", *TINY, "--models", "ease", "--json", "--at", "5")
    plain, none, decayed, timed = (
        json.loads(call(*ask, *option).out)["models"][0]["metrics"]["ndcg@5"]["mean"]
        for option in ([], ["--recency", "none"], ["--recency", "1"], ["--recency", "20d"])
    )
    assert plain == none
    assert len({plain, decayed, timed}) == 3


@pytest.mark.parametrize("models", ["ease", "popularity,ease"])
def test_auto_chooses_no_recency_where_the_order_is_without_meaning(
    call: Call, models: str
) -> None:
    ask = ("compare", "planted", *TINY, "--models", models, "--json")
    auto, none = (json.loads(call(*ask, "--recency", word).out) for word in ("auto", "none"))
    assert [one["recency"] for one in auto["models"]] == [None] * len(auto["models"])
    assert [one["metrics"] for one in auto["models"]] == [one["metrics"] for one in none["models"]]
    assert auto["differences"] == none["differences"]


def test_auto_chooses_a_recency_where_tastes_drift(call: Call, tmp_path: Path) -> None:
    ask = ("compare", "planted", *DRIFTING, "--models", "popularity,ease")
    done = call(*ask, "--recency", "auto", "--out", tmp_path / "tables")
    popular, ease = json.loads((tmp_path / "tables" / "comparison.json").read_text())["models"]
    assert popular["recency"] is None
    assert ease["recency"] == ease["tried"][0]["recency_choice"]["recency"]
    assert ease["recency"]["half_life"] > 0
    assert "popularity chose recency: none; " in done.out
    assert "ease chose recency: half-life " in done.out
    (tmp_path / "auto.toml").write_text('[recency]\nhalf_life = "auto"\n')
    again = json.loads(call(*ask, "--config", tmp_path / "auto.toml", "--json").out)["models"][1]
    assert (again["recency"], again["metrics"]) == (ease["recency"], ease["metrics"])


def test_shape_and_floor_change_the_answers(call: Call) -> None:
    ask = ("compare", "planted", *TINY, "--models", "ease", "--json", "--at", "5")
    found = {
        text: json.loads(call(*ask, "--recency", text).out)["models"][0]
        for text in ("1", "1:power", "1::0.3", "1:power:0.3")
    }
    assert len({one["metrics"]["ndcg@5"]["mean"] for one in found.values()}) == 4
    assert found["1:power:0.3"]["recency"] == {
        "half_life": 1.0,
        "unit": "positions",
        "shape": "power",
        "floor": 0.3,
    }


def test_popularity_may_count_a_window_of_time(call: Call) -> None:
    ask = ("compare", "planted", *TINY, "--models", "popularity", "--json")
    plain, late = (
        json.loads(call(*ask, "--set", f"window={window}").out)["models"][0]
        for window in ("none", "120d")
    )
    assert (plain["parameters"]["window"], late["parameters"]["window"]) == (None, "120d")
    assert plain["metrics"] != late["metrics"]
    chosen = json.loads(call(*ask, "--choose", "window=none,120d").out)["models"][0]
    assert {one["settings"]["window"] for one in chosen["tried"]} == {None, "120d"}


def test_the_protocol_paper_is_loud(call: Call) -> None:
    done = call("compare", "planted", *TINY, "--models", "popularity,ease", "--protocol", "paper")
    assert done.code == 0
    assert "SELECTED ON TEST: NOT A RESULT" in done.out.splitlines()[0]
    assert "SELECTED ON TEST: NOT A RESULT" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "easy"], "unknown model 'easy'; did you mean 'ease'?"),
        (["--models", "ease,ensemble"], "the model 'ensemble' is the control of a local model"),
        (["--models", ","], "models: expected at least one model"),
        (["--set", "compare.models=[]"], "models: expected at least one model"),
        (["--set", 'compare.models=["easy"]'], "unknown model 'easy'; did you mean 'ease'?"),
        (["--set", "compare.models=ease,loca-ease"], "compare.models: expected a list, each text"),
        (["--protocol", "clen"], "unknown protocol 'clen'; did you mean 'clean'?"),
        (
            ["--control", "ease", "--models", "popularity"],
            "control: 'ease' is not among the models (popularity)",
        ),
        (["--at", "ten"], "--at: expected a list, each a whole number"),
        (["--at", "0"], "0"),
        (["--test", "0"], "--test: expected a whole number ≥ 1, found 0"),
        (["--validation", "0"], "the protocol clean chooses on validation"),
        (["--protocol", "paper", "--validation", "2"], "the protocol paper has no validation part"),
        (
            ["--recency", "soon"],
            "recency: expected positions such as 4, a time such as 30d or 5steps, none or auto",
        ),
        (
            ["--recency", "4:powr"],
            "unknown recency shape 'powr'; did you mean",
        ),
        (
            ["--recency", "4:power:1"],
            "recency floor: expected a number from 0 to below 1, found 1.0",
        ),
        (
            ["--recency", "auto", "--validation", "0"],
            "recency: auto is chosen on held-out items",
        ),
        (
            ["--recency", "auto", "--protocol", "paper"],
            "recency: auto is chosen on validation",
        ),
        (["--set", "recency.shape=power"], "recency.shape: needs a half_life too"),
        (
            ["--models", "popularity", "--set", "window=30x"],
            "popularity: window: expected a time such as 30d",
        ),
        (
            [*KERNELS, "--set", "loca-ease.communities.train_bandwith=1"],
            "unknown option 'train_bandwith' for loca-ease.communities; did you mean",
        ),
        (
            ["--set", "loca-ease.communities.train_bandwidth=0.5"],
            "unknown option 'train_bandwidth' for loca-ease.communities; it is one of kernels: "
            "loca-ease.communities.kind=kernels",
        ),
        (
            [*KERNELS, "--set", "loca-ease.communities.train_bandwidth=0"],
            "loca-ease.communities: train_bandwidth: expected a number above 0",
        ),
        (
            [*KERNELS, "--set", "loca-ease.communities.answer_bandwidth=-0.5"],
            "loca-ease.communities: answer_bandwidth: expected a number above 0",
        ),
        (
            [*KERNELS, "--set", "loca-ease.communities.kernel=gauss"],
            "loca-ease.communities.kernel: expected 'epanechnikov', 'paper', 'uniform' or",
        ),
        (
            ["--set", "loca-ease.combiner.share=0.3"],
            "unknown option 'share' for loca-ease.combiner; it is one of fixed-share",
        ),
        (["--set", "communities.n=3"], "'communities.n' of which model?"),
        (["--set", "loca-ease.n=3"], "did you mean 'loca-ease.communities.n'?"),
        (["--choose", "split.test=1,2"], "--choose: expected a model's parameter"),
        (["--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (
            ["--set", "data.separator=;"],
            "the data 'planted' is made, not read; leave out separator",
        ),
    ],
)
def test_a_wrong_option_is_refused_before_any_data_is_read(
    call: Call, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setattr(
        "loca.cli.options.planted_communities", lambda **given: pytest.fail("data was read")
    )
    assert message in call("compare", "planted", *options).mistake


def test_an_output_folder_that_is_a_file_is_refused_first(call: Call, ratings: Path) -> None:
    assert (
        "expected a folder to write into, found a file"
        in call("compare", ratings, "--out", ratings).mistake
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--test", "100"], "test"),
        (["--validation", "100"], "validation"),
        (
            ["--models", "loca-ease", "--set", "engine={kind='differences', max_bytes=7}"],
            "max_bytes: expected at least",
        ),
    ],
)
def test_what_the_data_cannot_give_is_refused(
    call: Call, ratings: Path, options: list[str], message: str
) -> None:
    models = [] if "--models" in options else ["--models", "ease"]
    assert message in call("compare", ratings, "--quiet", *models, *options).mistake


@pytest.mark.real_data
def test_describe_gives_the_papers_counts_for_amusic(call: Call, real_data: Path) -> None:
    done = call("data", "describe", real_data / "amusic" / "amusic.rating", "--preset", "amusic")
    for figure in ("4,964", "11,797", "97,439", "99.83 %"):
        assert figure in done.out
