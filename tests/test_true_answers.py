"""Every answer is the one that was asked for, or says why not: wrong answers that once came without a word."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import loca
from loca.local.auto import Auto
from loca.models.recommender import Recommender
from loca.registry import RECORDS

HOUR = 3600
FIRST = 1_600_000_000
TITLES = {300: "Quiz Show (1994)", 54001: "300 (2007)", 1: "Toy Story (1995)", 2: "Heat (1995)"}
ITEMS = [300, 54001, 1, 2, 5, 6]
SMALL = {"latent": 2, "epochs": 1, "batch_size": 8}
# One of every kind of model, quickly fitted.
MODELS: dict[str, Callable[[], Recommender]] = {
    "popularity": loca.Popularity,
    "ease": lambda: loca.EASE(l2=1.0),
    "next-ease": lambda: loca.NextEASE(l2=1.0),
    "item-knn": lambda: loca.ItemKNN(neighbours=3),
    "slim": lambda: loca.SLIM(l1=0.1, l2=1.0),
    "wmf": lambda: loca.WMF(factors=2, iterations=2),
    "llorma": lambda: loca.LLORMA(anchors=2, factors=2),
    "sglsvd": lambda: loca.SGLSVD(clusters=2, global_rank=2, local_rank=1),
    "mult-vae": lambda: loca.MultVAE(**SMALL),
    "mult-dae": lambda: loca.MultDAE(**SMALL),
    "cdae": lambda: loca.CDAE(**SMALL),
    "rec-vae": lambda: loca.RecVAE(hidden=4, **SMALL),
    "loca": lambda: loca.Loca(base=loca.EASE(l2=1.0), communities=loca.Kernels(n=2)),
    "ensemble": lambda: loca.Ensemble(base=loca.EASE(l2=1.0), models=2),
    "blend": lambda: loca.Blend(parts=[loca.EASE(l2=1.0), loca.Popularity()]),
    "auto": lambda: Auto(chosen=loca.EASE(l2=1.0)),
}


def frame(**columns: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(columns)


def film_rows(per_second: int = 1) -> pl.DataFrame:
    """12 users with 3 of 6 films each, half an hour apart, rated 1 to 5."""
    rows = [
        (user, ITEMS[(user + 2 * place) % 6], 1 + (user + place) % 5, user * 50 + place)
        for user in range(1, 13)
        for place in range(3)
    ]
    users, items, ratings, steps = map(list, zip(*rows, strict=True))
    times = [(FIRST + step * HOUR // 2) * per_second for step in steps]
    return frame(user=users, item=items, rating=ratings, time=times)


@contextmanager
def told() -> Iterator[list[str]]:
    """The kinds of all remarks that are made inside, in order, each once."""
    kinds: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", loca.LocaWarning)
        yield kinds
    for one in caught:
        if isinstance(one.message, loca.LocaWarning) and one.message.kind not in kinds:
            kinds.append(one.message.kind)


@pytest.fixture(scope="module")
def films() -> loca.Interactions:
    with told():
        return loca.read_interactions(film_rows()).with_titles(TITLES)


@pytest.fixture(scope="module")
def models(films: loca.Interactions) -> dict[str, Recommender]:
    rest, held_out, _ = loca.hold_last(films, 1)
    with told():
        return {
            name: make().fit(rest, validation=held_out) if name == "blend" else make().fit(films)
            for name, make in MODELS.items()
        }


def test_every_kind_of_model_is_tried_here() -> None:
    kinds = {type(make()) for make in MODELS.values()}
    assert {type(record.make()) for record in RECORDS.values()} <= kinds


# -- Filters hold ----------------------------------------------------------------------------------


@pytest.mark.parametrize("on_unknown", ["error", "skip", "popular"])
@pytest.mark.parametrize("name", MODELS)
def test_a_block_list_with_a_mistake_is_refused_whatever_becomes_of_users(
    name: str, on_unknown: str, models: dict[str, Recommender]
) -> None:
    for wrong in ({"never": ["Silence"]}, {"only": [77]}, {"candidates": {1: [2, 77]}}):
        with pytest.raises(loca.DataError, match=r"^(never|only|candidates of 1): unknown item"):
            models[name].recommend([1], n=3, on_unknown=on_unknown, **wrong)


@pytest.mark.parametrize("name", MODELS)
def test_a_block_list_holds_for_unknown_users_too(
    name: str, models: dict[str, Recommender]
) -> None:
    with told() as kinds:
        found = models[name].recommend(
            [1, "nobody"], n=6, never=[300, "Heat (1995)"], on_unknown="popular", hide_seen=False
        )
    assert not {300, 2} & set(found.items.ravel().tolist())
    assert kinds == ["popular-instead"]
    assert [one.kind for one in found.remarks] == kinds


def test_candidates_for_nobody_are_refused(models: dict[str, Recommender]) -> None:
    ease = models["ease"]
    with pytest.raises(loca.DataError, match="candidates: unknown user '4 2'"):
        ease.recommend([4], candidates={"4 2": [300]})
    with pytest.raises(loca.DataError, match="none of the 1 user that they name, such as"):
        ease.recommend([4], candidates={5: [300]})
    with pytest.raises(loca.DataError, match="none of the 0 users"):
        ease.recommend([4], candidates={})


# -- Titles and ids ---------------------------------------------------------------------------------


def test_titles_are_taken_wherever_ids_are(models: dict[str, Recommender]) -> None:
    ease = models["ease"]
    by_title = ease.recommend([["Toy Story (1995)", "heat"]], n=3, never=["Quiz Show"])
    by_id = ease.recommend([[1, 2]], n=3, never=[300])
    assert by_title.items.tolist() == by_id.items.tolist()
    assert ease.similar_items("Toy Story (1995)", 2).users.tolist() == [1]
    why = ease.explain([["Toy Story"]], item="Heat (1995)")
    assert why.names.ids(why.items) == [2]


def test_a_text_that_is_an_id_and_a_title_is_told(models: dict[str, Recommender]) -> None:
    with told() as kinds:
        found = models["ease"].recommend([["300"]], n=3)
    assert kinds == ["ambiguous-item"]
    assert "'300' is taken as the id of Quiz Show (1994); the title 300 (2007)" in str(found)


# -- Time --------------------------------------------------------------------------------------------


def test_an_update_in_another_unit_of_time_keeps_the_order() -> None:
    rows = film_rows(per_second=1000)
    with told():
        model = loca.EASE(l2=1).fit(loca.read_interactions(rows, recency=loca.Recency(1)))
        model.update(frame(user=[1], item=[5], rating=[5], time=["2026-01-01"]))
    data = model.train_data_
    assert data is not None
    assert data.items.ids(data.items_of(data.users.row(1)))[-1] == 5
    assert data.time_span().endswith("2026-01-01")


def test_bare_numbers_do_not_mix_with_moments() -> None:
    with told():
        model = loca.EASE(l2=1).fit(film_rows())
    with pytest.raises(
        loca.DataError, match=r"known .* seconds since 1970 .* new ones bare numbers"
    ):
        model.update(frame(user=[1], item=[5], rating=[5], time=[7]))


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([FIRST * 1000 + step for step in range(36)], "milliseconds"),
        ([20200901 + step % 20 for step in range(36)], "days"),
        ([f"2020-09-{1 + step % 20:02d} 10:00" for step in range(36)], "text to the minute"),
    ],
)
def test_an_age_is_one_whatever_the_times_were_written_in(times: list[Any], unit: str) -> None:
    with told():
        data = loca.read_interactions(film_rows().with_columns(time=pl.Series(times)))
    assert data.time_unit == "seconds", unit
    assert loca.Popularity(window="30d").fit(data).shares_.sum() > 0


def test_an_age_of_bare_numbers_is_refused() -> None:
    with told():
        data = loca.read_interactions(film_rows().with_columns(time=pl.Series(range(36))))
    with pytest.raises(loca.DataError, match=r"bare numbers \(0 to 35\), no seconds"):
        loca.Popularity(window="30d").fit(data)
    with pytest.raises(loca.DataError, match=r"half-life 30 days.*bare numbers"):
        data.with_recency(loca.Recency("30d")).histories()
    assert data.with_recency(loca.Recency("5steps")).histories().nnz == 36


# -- What a fit was filtered by ---------------------------------------------------------------------


@pytest.fixture
def liked() -> Recommender:
    with told():
        return loca.EASE(l2=1).fit(loca.read_interactions(film_rows(), min_rating=4))


def test_low_ratings_of_an_update_are_left_out_as_at_the_fit(liked: Recommender) -> None:
    before = len(liked.train_data_)  # type: ignore[arg-type]
    with told() as kinds:
        liked.update(frame(user=[1, 1], item=[1, 2], rating=[0.5, 5], time=[FIRST * 2] * 2))
    assert len(liked.train_data_) <= before + 1  # type: ignore[arg-type]
    assert kinds == ["ratings-left-out"]
    with pytest.raises(loca.DataError, match=r"at least 4, but the highest is 0\.5"):
        liked.update(frame(user=[1], item=[1], rating=[0.5], time=[FIRST * 2]))


def test_low_ratings_are_no_history_and_no_targets(liked: Recommender) -> None:
    with told() as kinds:
        by_rated = liked.recommend(frame(user=["x", "x"], item=[1, 2], rating=[0.5, 5]), n=3)
    assert kinds == ["ratings-left-out"]
    assert by_rated.items.tolist() == liked.recommend([[2]], n=3).items.tolist()
    later = frame(user=[1, 2, 3], item=[5, 6, 5], rating=[1, 5, 5], time=[FIRST * 2] * 3)
    with told() as kinds:
        found = loca.evaluate(liked, later, at=[3])
    assert "ratings-left-out" in kinds
    assert 1 not in found.users.tolist()


def test_rows_without_ratings_are_told_where_a_fit_was_filtered(liked: Recommender) -> None:
    with told() as kinds:
        liked.recommend(frame(user=["x", "x"], item=[1, 2]), n=3)
    assert kinds == ["no-ratings"]
    with told():
        unfiltered = loca.read_interactions(film_rows())
    with pytest.raises(loca.DataError, match="fitted on those of at least 4, and here are all"):
        liked.update(unfiltered)


def test_low_ratings_that_count_as_likes_are_told() -> None:
    with told() as kinds:
        model = loca.EASE().fit(frame(user=[1, 1, 2], item=["a", "b", "a"], rating=[-1, 1, 1]))
    assert kinds == ["low-ratings"]
    assert "note: the frame: 33 % of the ratings are below 0" in repr(model)


def test_weights_of_a_fit_reach_what_comes_later() -> None:
    rows = frame(user=[1, 1, 2, 2], item=["a", "b", "a", "c"], plays=[1, 2, 3, 4])
    model = loca.EASE(l2=1).fit(loca.read_interactions(rows, weight="plays"))
    model.update(frame(user=[1], item=["a"], plays=[5]))
    assert model.train_data_.matrix().toarray()[0].tolist() == [6, 2, 0]  # type: ignore[union-attr]
    with pytest.raises(loca.DataError, match="no column 'plays'"):
        model.update(frame(user=[1], item=["a"]))
    with told():
        plain = loca.read_interactions(rows)
    with pytest.raises(
        loca.DataError, match="fitted with weight='plays', and these rows were read"
    ):
        model.update(plain)


# -- Ids ---------------------------------------------------------------------------------------------


def test_an_id_beyond_64_bits_does_not_turn_all_into_fractions(tmp_path: Path) -> None:
    ids = [1234567890123456789 + number * 10**6 for number in range(4)]
    model = loca.EASE(l2=1).fit(frame(user=ids, item=["a", "b", "a", "b"]))
    path = tmp_path / "n.csv"
    path.write_text("user,item\n9223372036854775813,a\n")
    with pytest.raises(loca.DataError, match="whole numbers of 64 bits"):
        model.update(path)
    assert model.train_data_.users.values.tolist() == ids  # type: ignore[union-attr]


def test_a_title_in_place_of_a_new_id_is_refused() -> None:
    data = loca.read_interactions(frame(user=[1, 1], item=["tt1", "tt2"]))
    model = loca.EASE().fit(data.with_titles({"tt1": "Heat (1995)"}))
    with pytest.raises(loca.DataError, match="'Heat \\(1995\\)' is the title of 'tt1'; give ids"):
        model.update(frame(user=[1], item=["Heat (1995)"]))


# -- Measuring ---------------------------------------------------------------------------------------


def test_a_model_that_has_seen_the_targets_is_told_with_their_share(
    films: loca.Interactions,
) -> None:
    split = loca.leave_last_out(films, test=1)
    with told() as kinds:
        found = loca.evaluate(loca.EASE(l2=1).fit(films), split.test, at=[3])
    assert kinds == ["leak"]
    assert "fitted on 100 % of the targets (12)" in str(found)
    with told() as kinds:
        loca.evaluate(loca.EASE(l2=1).fit(split.train), split.test, at=[3])
    assert kinds == []


def test_a_repeat_of_the_own_history_is_no_leak() -> None:
    rows = frame(user=[1, 1, 1, 2, 2], item=["a", "b", "a", "a", "b"], time=[1, 2, 3, 1, 2])
    split = loca.leave_last_out(loca.read_interactions(rows, distinct=False), test=1)
    with told() as kinds:
        loca.evaluate(loca.EASE(l2=1).fit(split.train), split.test, at=[1])
    assert "leak" not in kinds


# -- Matrices ----------------------------------------------------------------------------------------


def test_the_values_of_a_matrix_are_weights_however_it_is_given() -> None:
    ratings = csr_array(np.array([[5, 3, 0], [0, 4, 1], [2, 0, 5]], dtype=np.float32))
    direct = loca.EASE(l2=1).fit(ratings).weights_
    np.testing.assert_array_equal(
        loca.EASE(l2=1).fit(loca.read_interactions(ratings)).weights_, direct
    )
    data = loca.Interactions.from_matrix(ratings)
    np.testing.assert_array_equal(loca.EASE(l2=1).fit(data).weights_, direct)


# -- Python as generous as the command line ---------------------------------------------------------


def test_fit_and_compare_take_a_frame_a_path_a_matrix_and_names(tmp_path: Path) -> None:
    rows = film_rows()
    path = tmp_path / "films.csv"
    path.write_text(
        "user,item,rating,time\n" + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in rows.rows())
    )
    with told():
        by_frame = loca.fit(rows, loca.EASE(l2=1.0), validation=1).model
        by_path = loca.fit(path, loca.EASE(l2=1.0), validation=1).model
        by_pandas = loca.EASE(l2=1.0).fit(rows.to_pandas())
        by_arrow = loca.EASE(l2=1.0).fit(rows.to_arrow())
        compared = loca.compare(
            ["ease", "popularity"], loca.leave_last_out(rows, test=1, validation=1), at=[2]
        )
    for other in (by_path, by_pandas, by_arrow):
        np.testing.assert_array_equal(other.weights_, by_frame.weights_)  # type: ignore[attr-defined]
    assert [one.name for one in compared.measured] == ["ease", "popularity"]
    matrix = loca.Interactions.from_matrix(csr_array(np.eye(4, 5) + np.eye(4, 5, 1)))
    assert loca.fit(matrix.matrix(), loca.Popularity(), validation=0).model.train_data_ is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: loca.EASE(L2=3), "EASE: unknown argument 'L2'; did you mean 'l2'"),
        (lambda: loca.read_interactions([], min_ratings=4), "did you mean 'min_rating'"),
        (lambda: loca.fit([], modle="ease"), "fit: unknown argument 'modle'; did you mean 'model'"),
        (lambda: loca.compare([], None, cutoff=3), "compare: unknown argument 'cutoff'; it takes"),
        (lambda: loca.leave_last_out([], tests=2), "did you mean 'test'"),
        (lambda: loca.EASE().fit([], weights=2), "did you mean 'user_weights'"),
    ],
)
def test_a_mistyped_argument_gets_the_near_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message) as raised:
        call()
    assert isinstance(raised.value, loca.ConfigError)


@pytest.mark.parametrize("budget", ["12min", 720, 720.0, loca.Budget("12min")])
def test_a_budget_is_a_text_a_number_or_itself(budget: Any) -> None:
    assert loca.Budget.of(budget) == loca.Budget(seconds=720)


def test_moments_and_lengths_may_be_given_by_position(films: loca.Interactions) -> None:
    # User 12's last film but one, an hour before the newest.
    moment = float(films.times.max()) - HOUR // 2  # type: ignore[union-attr]
    assert len(loca.split_at_time(films, moment).test.targets) == 2


# -- On the command line ------------------------------------------------------------------------------


def written(folder: Path, name: str, table: pl.DataFrame) -> Path:
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows(table.rows())
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    from loca.cli.main import main

    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_commands_tell_and_refuse_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratings, model = written(tmp_path, "r.csv", film_rows()), tmp_path / "m"
    fit = ("fit", ratings, "--model", "ease", "--validation", "0", "--out", model)
    code, _, notes = run(capsys, *fit)
    assert code == 0
    assert "note: r.csv: 36 % of the ratings are below 3" in notes
    assert "--min-rating 4 takes only those above the middle" in notes
    code, out, _ = run(capsys, *fit, "--min-rating", "4", "--json")
    assert (code, json.loads(out)["notes"]) == (0, [])
    low = written(
        tmp_path, "low.csv", frame(user=[1, 1], item=[1, 2], rating=[1, 5], time=[FIRST * 2] * 2)
    )
    code, out, _ = run(capsys, "update", model, low, "--json")
    assert code == 0
    assert [one["kind"] for one in json.loads(out)["notes"]] == ["ratings-left-out"]
    code, _, line = run(capsys, "update", model, low, "--min-rating", "3")
    assert code == 2
    assert "--min-rating: the model was fitted with --min-rating 4" in line
    for on_unknown in ("error", "skip", "popular"):
        ask = ("recommend", model, "--user", "2", "--on-unknown", on_unknown)
        assert run(capsys, *ask, "--never", "Silence")[0] == 2
    code, out, notes = run(capsys, "recommend", model, "--user", "zoe", "--on-unknown", "popular")
    assert code == 0
    assert "note: 1 user without a known history: the list is what is popular" in notes


def test_a_command_weights_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = written(
        tmp_path,
        "e.csv",
        frame(user=[1, 1, 2, 2], item=[1, 2, 1, 3], event=["view", "buy", "view", "view"]),
    )
    fit = ("fit", events, "--model", "popularity", "--validation", "0", "--out", tmp_path / "m")
    _, _, notes = run(capsys, *fit)
    assert "whatever column 'event' (view, buy) says; --weight view=1,buy=1 with" in notes
    code, _, notes = run(capsys, *fit, "--weight", "view=1,buy=10")
    assert (code, "count the same" in notes) == (0, False)
    model = loca.load(tmp_path / "m")
    assert model.train_data_.matrix().toarray().tolist() == [[1, 10, 0], [1, 0, 1]]  # type: ignore[union-attr]
    assert str(model.train_data_.weighting) == "view=1,buy=10"  # type: ignore[union-attr]


# -- Mistakes that somebody new makes ------------------------------------------------------------------


def test_exchanged_columns_of_an_update_are_refused(films: loca.Interactions) -> None:
    with told():
        data = loca.read_interactions(
            frame(user=["ann", "bob"] * 2, item=["tea", "salt", "oil", "tea"])
        )
    model = loca.EASE().fit(data)
    swapped = frame(user=["tea", "salt"], item=["ann", "bob"])
    for call in (lambda: model.update(swapped), lambda: loca.evaluate(model, swapped)):
        with pytest.raises(loca.DataError, match="100 % of the users are known items"):
            call()
    assert loca.EASE().fit(films).update(frame(user=[1], item=[5])) is not None


def test_ids_that_lost_their_leading_zeros_are_refused() -> None:
    model = loca.EASE().fit(frame(user=["a", "b"] * 2, item=["007", "010", "tt1", "tt2"]))
    later = frame(user=["a", "b"], item=["7", "10"])
    for call in (lambda: model.update(later), lambda: loca.evaluate(model, later)):
        with pytest.raises(loca.DataError, match=r"but for leading zeros, such as '(7|10)'"):
            call()
    assert model.update(frame(user=["a"], item=["12"])).train_data_.n_items == 5  # type: ignore[union-attr]


def test_weights_of_rows_that_may_be_copies_are_told() -> None:
    rows = frame(user=[1, 1, 2], item=["a", "b", "a"], plays=[1, 2, 3], time=[FIRST] * 3)
    model = loca.EASE().fit(loca.read_interactions(rows, weight="plays"))
    with told() as kinds:
        model.update(rows.head(2))
    assert kinds == ["repeats-added"]
    with told() as kinds:
        loca.read_interactions(pl.concat([rows, rows]), weight="plays")
    assert kinds == ["repeats-added"]


def test_targets_older_than_their_histories_are_told(films: loca.Interactions) -> None:
    split = loca.leave_last_out(films, test=1)
    backwards = loca.HeldOut(split.test.targets, split.test.histories)
    with told() as kinds:
        loca.evaluate(loca.EASE().fit(split.test.targets), backwards, at=[2])
    assert kinds == ["targets-older"]


def test_a_history_is_a_list_and_nothing_else(models: dict[str, Recommender]) -> None:
    ease = models["ease"]
    for wrong, kind in (({1, 2}, "set"), ({1: 5.0}, "dict")):
        with pytest.raises(loca.DataError, match=f"oldest first, found a {kind}"):
            ease.recommend({"me": wrong})
    with pytest.raises(loca.DataError, match="these are items: a history is a list inside a list"):
        ease.recommend([300, 54001])
    with pytest.raises(loca.ConfigError, match="hide_seen: expected True or False, found 'no'"):
        ease.recommend([1], hide_seen="no")


def test_a_list_in_no_order_is_told() -> None:
    rows = frame(user=[1, 1, 2, 2, 3], item=["a", "b", "a", "b", "z"])
    model = loca.EASE().fit(rows)
    with told() as kinds:
        found = model.recommend([3], n=2)
    assert kinds == ["no-preference"]
    assert "1 user: all listed items have one score" in str(found)
    with told() as kinds:
        model.recommend([1], n=1)
    assert kinds == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: loca.EASE(500), r"EASE: parameters are given by name; write EASE\(l2=500\)"),
        (
            lambda m: m.recommend([1], only="1,2"),
            r"expected a list of item ids, found '1,2'; write \['1', '2'\]",
        ),
        (lambda m: m.recommend([1], never=frame(item=[1])), "found a data frame; give its column"),
        (lambda m: loca.evaluate(loca.fit(film_rows(), m, validation=0), None), "give its model"),
        (lambda m: m.update(frame(user=["10.0"], item=[1])), "found '10.0'; write 10 for it"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(
    call: Callable[[Any], object], message: str, films: loca.Interactions
) -> None:
    with told(), pytest.raises(loca.LocaError, match=message):
        call(loca.EASE().fit(films))


def test_what_validation_would_have_chosen_is_told(films: loca.Interactions) -> None:
    rest, held_out, _ = loca.hold_last(films, 1)
    # So few users do not show that communities earn something.
    for model, with_validation in (
        (loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=2)), []),
        (loca.Loca(base=loca.EASE(), communities=loca.BestOf(n=2)), ["communities"]),
        (loca.Blend(parts=[loca.EASE(), loca.Popularity()]), []),
    ):
        with told() as kinds:
            loca.clone(model).fit(films)
        assert kinds == ["no-validation"]
        with told() as kinds:
            fitted = loca.clone(model).fit(rest, validation=held_out)
        assert kinds == with_validation
        with told() as kinds:
            fitted.selected().fit(films)
        assert kinds == []


def test_fewer_communities_than_by_default_are_told(films: loca.Interactions) -> None:
    with told() as kinds:
        local = loca.Loca(base=loca.EASE(), communities=loca.Kernels())
        loca.clone(local, combiner=loca.FixedShare(0.5)).fit(films)
    assert kinds == ["communities"]
