"""A benchmark has data, models and sizes; over seeds each user has a mean, and differences are paired."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import compared, evaluation, level, results, swaying, tiny_benchmark

import loca.paper.benchmark as benchmark_file
from loca.config.model_factory import build_models
from loca.data.datasets import PUBLIC_SETS
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, DataError
from loca.evaluation.significance import bootstrap_intervals, paired_difference
from loca.models.ease import EASE
from loca.models.recommender import get_params
from loca.paper.benchmark import SMALL, Sizes, StudiedData, open_data
from loca.paper.published import printed_accuracy
from loca.paper.seed_means import SeedMeans, interval_of
from loca.tuning.model_selection import EvaluationProtocol, run_protocol

# Two users with eleven films each, in the order of their times.
FILMS = {1: list(range(101, 112)), 2: list(range(111, 100, -1))}
MOVIES = {
    film: (f"Film {film} (1995)", "Comedy|Drama" if film % 2 else "Horror")
    for film in range(101, 112)
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of public data."""
    monkeypatch.setenv("LOCA_DATA", str(tmp_path))
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="latin-1")
    return path


def write_zip(path: Path, members: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text.encode("latin-1"))


def ratings(separator: str, header: str = "") -> str:
    """User, item, rating and time of every film, newest first in the file."""
    lines = [
        separator.join(map(str, (user, film, 5, 1000 + place)))
        for user, films in FILMS.items()
        for place, film in reversed(list(enumerate(films)))
    ]
    return header + "\n".join(lines) + "\n"


def movies_dat() -> str:
    return "".join(f"{film}::{title}::{genres}\n" for film, (title, genres) in MOVIES.items())


def movies_csv() -> str:
    lines = [f"{film},{title},{genres}" for film, (title, genres) in MOVIES.items()]
    return "movieId,title,genres\n" + "\n".join(lines) + "\n"


def u_item() -> str:
    comedy = "|".join("1" if place == 5 else "0" for place in range(19))
    return "".join(
        f"{film}|{title}|01-Jan-1995||http://x|{comedy}\n" for film, (title, _) in MOVIES.items()
    )


def reviews() -> bytes:
    lines = [
        json.dumps(
            {
                "reviewerID": f"A{user}",
                "asin": f"B{film}",
                "overall": 5.0,
                "unixReviewTime": 1000 + place,
            }
        )
        for user, films in FILMS.items()
        for place, film in enumerate(films)
    ]
    return gzip.compress("\n".join(lines).encode())


def as_published(path: Path) -> None:
    """A small file in the published format of the set whose file has that name."""
    name, inside = path.name, {"ml-10m": "ml-10M100K"}.get(path.stem, path.stem)
    if name == "ml-100k.zip":
        write_zip(
            path,
            {
                f"{inside}/README": "x",
                f"{inside}/u.data": ratings("\t"),
                f"{inside}/u.item": u_item(),
            },
        )
    elif name in ("ml-1m.zip", "ml-10m.zip"):
        members = {f"{inside}/movies.dat": movies_dat(), f"{inside}/ratings.dat": ratings("::")}
        write_zip(path, {**members, f"{inside}/tags.dat": "1::101::x::1\n"})
    elif name.endswith(".zip"):
        table = ratings(",", "userId,movieId,rating,timestamp\n")
        links = f"{inside}/links.csv"
        write_zip(
            path,
            {links: "a,b\n", f"{inside}/movies.csv": movies_csv(), f"{inside}/ratings.csv": table},
        )
    elif name.endswith(".json.gz"):
        path.parent.mkdir(parents=True)
        path.write_bytes(reviews())
    else:
        write(path, ratings("\t" if name == "yelp.rating" else ","))


def history_of(data: StudiedData, user: object) -> list[object]:
    rows = data.interactions.items_of(int(data.interactions.users.rows([user])[0]))
    return list(data.interactions.items.ids(rows))


@pytest.mark.parametrize("name", PUBLIC_SETS)
def test_whatever_is_fetched_is_found_and_read_in_the_order_of_time(
    folder: Path, name: str
) -> None:
    as_published(folder / name / PUBLIC_SETS[name].file_name)
    data = open_data(name)
    is_json = PUBLIC_SETS[name].layouts[0] == "amazon-reviews"
    assert data.name == name
    assert (data.interactions.n_users, data.interactions.n_items, len(data.interactions)) == (
        2,
        11,
        22,
    )
    for user, films in FILMS.items():
        expected = [f"B{film}" for film in films] if is_json else films
        assert history_of(data, f"A{user}" if is_json else user) == expected
    preset = PUBLIC_SETS[name].preset
    assert (data.printed is None) == (preset is None) == (data.as_printed is None)
    assert (data.printed or "").lower() == (preset or "")


@pytest.mark.parametrize("name", [name for name in PUBLIC_SETS if name.startswith("ml-")])
def test_films_have_titles_and_genres(folder: Path, name: str) -> None:
    as_published(folder / name / PUBLIC_SETS[name].file_name)
    data = open_data(name)
    for protocol in ("clean", "paper"):
        items = data.split(protocol).train.items
        assert items.label(int(items.rows([101])[0])) == "Film 101 (1995)", protocol
    assert data.genres[101] == (("Comedy",) if name == "ml-100k" else ("Comedy", "Drama"))


def test_ratings_in_their_order_stand_in_for_those_with_times(folder: Path) -> None:
    lines = [
        f"{user},{film},5,{place}"
        for user, films in FILMS.items()
        for place, film in enumerate(films, start=1)
    ]
    packed = gzip.compress("\n".join(["user,item,rating,rank", *reversed(lines)]).encode())
    write(folder / "ml-1m" / "movies.dat", movies_dat())
    (folder / "ml-1m" / "ratings-ordered.csv.gz").write_bytes(packed)
    data = open_data("ml-1m")
    assert (data.name, data.label, data.validation) == ("ml-1m", "ML-1M", 5)
    assert history_of(data, 2) == FILMS[2]
    assert data.genres[102] == ("Horror",)
    assert data.interactions.items.labels is not None
    assert "Film 102 (1995)" in data.interactions.items.labels


def test_ratings_with_times_come_before_those_in_order(folder: Path) -> None:
    write(folder / "ml-1m" / "ratings-ordered.csv.gz", "not looked at")
    write(folder / "ml-1m" / "ratings.dat", ratings("::"))
    data = open_data("ml-1m")
    assert history_of(data, 1) == FILMS[1]
    assert data.genres == {}


def repeated(folder: Path) -> StudiedData:
    """User 1 has 12 rows of 10 items, 2 has 10 rows of 9 items, 3 has 10 of 10, 4 has 9 rows, one of item 99."""
    items = {
        1: [1, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10, 2],
        2: [1, 2, 3, 4, 5, 6, 7, 8, 9, 9],
        3: list(range(1, 11)),
        4: [*range(1, 9), 99],
    }
    lines = [
        f"{user},{item},5,{place}"
        for user, listed in items.items()
        for place, item in enumerate(listed)
    ]
    write(folder / "amusic" / "amusic.rating", "\n".join(lines) + "\n")
    return open_data("amusic")


def test_repeated_pairs_stay_under_paper_and_go_under_clean(folder: Path) -> None:
    data = repeated(folder)
    paper, clean = data.split("paper"), data.split("clean")
    # 12 + 10 + 10 rows, and the item that only a user with too few has: the paper counts it.
    assert (
        len(paper.train) + len(paper.test.targets),
        paper.train.n_users,
        paper.train.n_items,
    ) == (32, 3, 11)
    assert (clean.train.users.ids([0, 1]), clean.train.n_users, clean.train.n_items) == (
        [1, 3],
        2,
        10,
    )
    assert data.printed == "AMusic"


def test_paper_holds_out_the_last_five_and_clean_some_before_them_too(folder: Path) -> None:
    data = repeated(folder)
    paper, clean = data.split("paper"), data.split("clean")
    assert paper.validation is None
    assert paper.test.targets.items.ids(paper.test.targets.items_of(0)) == [7, 8, 9, 10, 2]
    assert clean.validation is not None
    assert clean.test.targets.items.ids(clean.test.targets.items_of(0)) == [7, 8, 9, 10, 2]
    assert clean.validation.targets.items.ids(clean.validation.targets.items_of(0)) == [5, 6]
    assert clean.train.items.ids(clean.train.items_of(0)) == [1, 3, 4]


def test_films_have_five_for_validation(folder: Path) -> None:
    write(folder / "ml-1m" / "ratings.dat", ratings("::"))
    clean = open_data("ml-1m").split("clean")
    assert clean.validation is not None
    assert clean.validation.targets.counts().tolist() == [5, 5]
    assert clean.test.targets.counts().tolist() == [5, 5]


def test_data_that_the_paper_has_not_are_the_same_under_both_protocols_but_for_validation(
    tmp_path: Path,
) -> None:
    data = open_data(str(write(tmp_path / "own.csv", ratings(",", "user,item,rating,timestamp\n"))))
    assert (data.name, data.label, data.printed, data.as_printed) == (
        "own.csv",
        "own.csv",
        None,
        None,
    )
    assert len(data.split("paper").train) == len(data.split("clean").train_and_validation) == 12


def test_users_with_fewer_than_ten_have_no_place(tmp_path: Path) -> None:
    short = "".join(f"3,{film},5,{film}\n" for film in range(101, 110))
    path = write(tmp_path / "own.csv", ratings(",", "user,item,rating,timestamp\n") + short)
    assert open_data(str(path)).interactions.users.ids([0, 1]) == [1, 2]
    assert open_data(str(path)).interactions.n_users == 2


def test_planted_data_are_made_by_their_seed_with_communities_for_genres() -> None:
    data, same, other = open_data("planted"), open_data("planted"), open_data("planted", seed=1)
    assert (data.name, data.interactions.n_users, data.interactions.n_items) == (
        "planted",
        1000,
        150,
    )
    assert data.interactions.item_rows.tolist() == same.interactions.item_rows.tolist()
    assert data.interactions.item_rows.tolist() != other.interactions.item_rows.tolist()
    assert {genre for genres in data.genres.values() for genre in genres} == {
        f"community {n}" for n in range(1, 7)
    }


@pytest.mark.parametrize("name", PUBLIC_SETS)
def test_a_known_set_that_is_not_there_is_refused_with_the_way_to_get_it(
    folder: Path, name: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_data(name)
    told = str(caught.value)
    assert f"data {name!r}: expected {PUBLIC_SETS[name].files[0]} below {folder}" in told
    assert "LOCA_DATA" in told
    assert told.endswith(f"loca data fetch {name}")
    assert "\n" not in told


@pytest.mark.parametrize("name", ["games-2018", "ml-1m-ordered"])
def test_a_set_that_cannot_be_fetched_is_refused_without_such_advice(
    folder: Path, name: str
) -> None:
    with pytest.raises(
        ConfigError, match=f"below .*{folder.name}; set LOCA_DATA to the folder that holds it$"
    ):
        open_data(name)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("amusik", "did you mean 'amusic'"),
        ("AMusic", "did you mean 'amusic'"),
        ("plantd", "did you mean 'planted'"),
        ("nothing/like/it.csv", "known by name are planted, ml-100k, ml-1m"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_or_all(
    folder: Path, name: str, advice: str
) -> None:
    with pytest.raises(
        ConfigError, match="there is no such file, and no data set of that name"
    ) as caught:
        open_data(name)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: write(path, "1,2\n" * 20),
        lambda path: write(path, ""),
        lambda path: path.mkdir(parents=True),
    ],
    ids=["too few fields", "empty", "a folder"],
)
def test_a_file_that_is_not_what_it_should_be_is_refused_in_one_line(
    folder: Path, damage: Callable[[Path], object]
) -> None:
    damage(folder / "amusic" / "amusic.rating")
    with pytest.raises(DataError) as caught:
        open_data("amusic")
    assert "amusic.rating" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.real_data
def test_plain_ease_under_paper_has_the_row_that_the_paper_prints(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCA_DATA", str(real_data))
    outcome = run_protocol(
        [EASE(l2=100.0)], open_data("amusic").split("paper"), EvaluationProtocol("paper")
    )
    means = outcome.evaluation.means()
    # Recall@100 is printed as .1506: one hit of one user in 24,820 targets less.
    known = {"recall@50": 0.1129, "ndcg@50": 0.0717, "recall@100": 0.1507, "ndcg@100": 0.0821}
    assert {metric: means[metric] for metric in known} == pytest.approx(known, abs=1e-4)
    for metric, value in known.items():
        assert printed_accuracy("AMusic", "ease", metric) == pytest.approx(value, abs=1.01e-4)


def test_models_are_made_once_for_each_seed_and_given_out_as_copies(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(
        benchmark_file,
        "build_models",
        lambda *asked: (seeds.append(asked[-1]), build_models(*asked))[1],
    )
    bench = tiny_benchmark(planted)
    first, again, other = (
        bench.model("mult-vae"),
        bench.model("mult-vae"),
        bench.model("mult-vae", 1),
    )
    bench.model("loca-vae")
    assert seeds == [0, 1]
    assert first is not again
    assert get_params(first) == get_params(again)
    assert (get_params(first)["latent"], get_params(first)["seed"], get_params(other)["seed"]) == (
        8,
        0,
        1,
    )
    first.latent = 99  # type: ignore[attr-defined]
    assert get_params(bench.model("mult-vae"))["latent"] == 8
    inside, next_inside = bench.model("loca-vae"), bench.model("loca-vae")
    assert get_params(inside)["base"] is not get_params(next_inside)["base"]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (300, (1, 10, 50, 100, 200, 300)),
        (100, (1, 10, 50, 100)),
        (500, (1, 10, 50, 100, 200, 300, 500)),
        (50, (1, 2, 5, 10, 20, 50)),
        (12, (1, 2, 5, 10, 12)),
        (2, (1, 2)),
        (1, (1,)),
    ],
)
def test_counts_are_the_paper_s_or_fewer_below_the_whole_and_the_whole(
    whole: int, expected: tuple[int, ...]
) -> None:
    assert Sizes().counts(whole) == expected


@pytest.mark.parametrize(
    ("whole", "expected"),
    [(300, (100, 200, 300)), (100, (33, 66, 100)), (6, (2, 4, 6)), (2, (1, 2)), (1, (1,))],
)
def test_thirds_are_the_paper_s_steps_at_300_and_rise_at_any_size(
    whole: int, expected: tuple[int, ...]
) -> None:
    assert Sizes().thirds(whole) == expected


@pytest.mark.parametrize(
    ("local_models", "expected"),
    [
        (300, (1, 2, 5, 10, 15, 20, 50, 100, 300)),
        (20, (1, 2, 5, 10, 15, 20)),
        (12, (1, 2, 5, 10)),
        (1, (1,)),
    ],
)
def test_timed_are_the_steps_of_table_5_up_to_the_local_models(
    local_models: int, expected: tuple[int, ...]
) -> None:
    assert Sizes(local_models=local_models).timed() == expected


@pytest.mark.parametrize(
    "name", ["local_models", "sweep_models", "pilot_models", "loop_models", "seeds"]
)
@pytest.mark.parametrize("wrong", [0, -3])
def test_a_size_below_one_is_refused_in_one_line(name: str, wrong: int) -> None:
    sizes: dict[str, Any] = {name: wrong}
    with pytest.raises(ConfigError, match=rf"^{name}: expected a whole number ≥ 1, found {wrong}$"):
        Sizes(**sizes)


@pytest.mark.parametrize("wrong", [0, -1.5, float("nan")])
def test_no_seconds_for_auto_are_refused_in_one_line(wrong: float) -> None:
    with pytest.raises(
        ConfigError, match=rf"^auto_seconds: expected a number above 0, found {wrong}$"
    ):
        Sizes(auto_seconds=wrong)
    assert Sizes(auto_seconds=0.5).auto_seconds == 0.5


def test_the_built_in_data_has_a_small_scale_with_as_many_seeds() -> None:
    whole = Sizes()
    assert SMALL.seeds == whole.seeds == 3
    for name in ("local_models", "sweep_models", "pilot_models", "loop_models", "auto_seconds"):
        assert getattr(SMALL, name) < getattr(whole, name)


def two_seeds() -> SeedMeans:
    """Three users: 0.1, 0.2, 0.6 with one seed, 0.3, 0.2, 0.1 with the other."""
    return SeedMeans((evaluation([0.1, 0.2, 0.6]), evaluation([0.3, 0.2, 0.1], seed=1)))


def test_each_user_has_the_mean_over_the_seeds() -> None:
    assert two_seeds().of_users() == pytest.approx([0.2, 0.2, 0.35])
    assert two_seeds().of_users("recall@100") == pytest.approx([0.4, 0.4, 0.7])


def test_the_mean_is_that_of_all_users_and_seeds() -> None:
    assert two_seeds().mean() == pytest.approx(0.25)
    assert two_seeds().mean("ndcg@50") == pytest.approx(0.125)


def test_each_seed_has_the_mean_over_the_users_and_the_spread_is_over_them() -> None:
    assert two_seeds().of_seeds() == pytest.approx((0.3, 0.2))
    # Divided by one less than the seeds: √(2 · 0.05² / 1).
    assert two_seeds().text() == f"0.2500 ± {0.1 / np.sqrt(2):.4f}"
    three = SeedMeans((*two_seeds().evaluations, evaluation([0.4, 0.4, 0.4], seed=2)))
    assert three.text() == "0.3000 ± 0.1000"


def test_one_seed_has_no_spread() -> None:
    assert SeedMeans((evaluation([0.1, 0.2, 0.6]),)).text() == "0.3000"


def test_the_interval_is_over_users_not_over_seeds() -> None:
    # The seeds are far apart, but every user has the same mean over them.
    alike = SeedMeans((evaluation(level(0.1)), evaluation(level(0.5), seed=1)))
    assert interval_of(alike.of_users()) == pytest.approx((0.3, 0.3))
    # The seeds agree, but the users do not.
    apart = SeedMeans((evaluation(swaying(0.3)), evaluation(swaying(0.3), seed=1)))
    low, high = interval_of(apart.of_users())
    assert 0.26 < low < 0.3 < high < 0.34
    assert (low, high) == pytest.approx(
        tuple(bootstrap_intervals(swaying(0.3)[:, None], seed=0)[0])
    )


def test_differences_are_paired_user_by_user() -> None:
    other = SeedMeans((evaluation([0.1, 0.1, 0.25]),))
    found = two_seeds().minus(other)
    assert (found.mean, found.user_count) == (pytest.approx(0.1), 3)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    assert found.relative == pytest.approx(0.1 / 0.15)
    assert found == paired_difference(two_seeds().of_users(), other.of_users(), seed=0)


def test_a_difference_that_every_user_has_is_sure_whatever_the_users_themselves_do() -> None:
    better, worse = SeedMeans((evaluation(swaying(0.31)),)), SeedMeans((evaluation(swaying(0.3)),))
    found = better.minus(worse)
    assert (found.low, found.high) == pytest.approx((0.01, 0.01))
    assert max(found.t_p, found.wilcoxon_p) < 1e-6
    assert interval_of(better.of_users())[0] < worse.mean()


def test_computed_cells_become_means_of_all_or_of_their_first_models() -> None:
    measured = [
        compared([0.4, 0.6], by_count={1: [0.1, 0.1], 3: [0.4, 0.6]}),
        compared([0.6, 0.8], seed=1, by_count={1: [0.3, 0.3], 3: [0.6, 0.8]}),
    ]
    found = results({"loca-vae h_T 0.1": measured})
    whole, first = found.means("loca-vae", "h_T 0.1"), found.means("loca-vae", "h_T 0.1", 1)
    assert whole is not None
    assert first is not None
    assert (whole.mean(), first.mean()) == pytest.approx((0.6, 0.2))
    assert found.means("loca-vae") is None
    assert found.means("ease", count=3) is None
