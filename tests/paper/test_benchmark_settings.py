"""The settings of a bench come from a file, from a folder by name and protocol, from tuning, or are small ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import tiny_benchmark

from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, LocaError
from loca.experiments.comparison import Comparison
from loca.local.combiner import FixedShare
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.mult_vae import MultVAE
from loca.paper import benchmark as benchmark_file
from loca.paper.benchmark import (
    ALL_NAMES,
    SMALL,
    Benchmark,
    Sizes,
    open_data,
    sizes_for,
    tables_for,
    tune_models,
)
from loca.paper.permuted import Permuted
from loca.search_space import Budget

EASE = "[ease]\nl2 = {}\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_without_settings_only_the_built_in_data_has_any() -> None:
    assert tables_for("amusic", "clean", None) == {}
    small = tables_for("planted", "paper", None)
    assert small["loca-vae"]["base"] == small["llorma-vae"]["base"] == small["mult-vae"]
    assert small["loca-dae"]["base"] == small["mult-dae"]
    assert set(small) <= set(ALL_NAMES)


def test_all_models_of_the_built_in_data_are_built_with_the_small_networks() -> None:
    data = open_data("planted")
    bench = Benchmark(
        data, "clean", data.split("clean"), SMALL, tables_for("planted", "clean", None)
    )
    for name in ALL_NAMES:
        bench.model(name)
    alone, many, control = (bench.model(name) for name in ("mult-vae", "loca-vae", "ensemble-vae"))
    assert isinstance(alone, MultVAE)
    assert isinstance(many, Loca)
    assert isinstance(control, Ensemble)
    small = bench.tables["mult-vae"]
    bases = [one for one in (alone, many.base, control.base) if isinstance(one, MultVAE)]
    assert [(one.latent, one.epochs) for one in bases] == [(small["latent"], small["epochs"])] * 3
    assert small["latent"] < MultVAE().latent
    assert (many.size, control.size) == (SMALL.local_models, SMALL.local_models)
    assert many.communities == Kernels(n=SMALL.local_models)  # the paper's


def test_mixtures_have_the_settings_of_the_kernels_row_and_dealt_ones_those_of_the_mixtures(
    planted: PlantedData,
) -> None:
    tables = {
        "loca-vae": {
            "communities": {"kind": "kernels", "answer_bandwidth": 0.3},
            "combiner": {"kind": "fixed-share", "share": 0.5},
            "base": {"latent": 9},
        },
        "mixture-vae": {"communities": {"membership_weight": 0.3}},
        "loca-ease": {"communities": {"kind": "kernels", "embedding": {"kind": "svd"}}},
    }
    bench = replace(tiny_benchmark(planted), tables=tables)
    names = ("loca-vae", "mixture-vae", "dealt-vae")
    kernels, mixture, dealt = models = [bench.model(name) for name in names]
    mixtures = Mixtures(n=2, membership_weight=0.3)
    assert kernels.communities == Kernels(n=3, answer_bandwidth=0.3)
    assert mixture.communities == mixtures
    assert dealt.communities == Permuted(finder=mixtures)
    assert {(one.combiner, one.base.latent) for one in models} == {(FixedShare(0.5), 9)}
    assert bench.model("ensemble-vae").base.latent == 9
    assert bench.model("mixture-ease").communities == Mixtures(n=2)


def test_settings_of_the_control_itself_win(planted: PlantedData) -> None:
    tables = {
        "mixture-ease": {"communities": {"membership_weight": 0.3}},
        "dealt-ease": {"communities": {"finder": {"membership_weight": 0.9}}},
    }
    bench = replace(tiny_benchmark(planted), tables=tables)
    assert bench.model("dealt-ease").communities.finder.membership_weight == 0.9
    assert bench.model("mixture-ease").communities.membership_weight == 0.3


def test_one_local_model_is_one_mixture(planted: PlantedData) -> None:
    sizes = Sizes(local_models=1, sweep_models=1)
    model = tiny_benchmark(planted, sizes=sizes).model("mixture-vae")
    assert model.communities == Mixtures(n=1, mixtures=1)


def test_a_file_holds_for_every_data_set_and_protocol(tmp_path: Path) -> None:
    path = write(tmp_path / "all.toml", EASE.format(30.0) + "[loca-vae]\nbase.latent = 64\n")
    expected = {"ease": {"l2": 30.0}, "loca-vae": {"base": {"latent": 64}}}
    assert tables_for("amusic", "clean", path) == tables_for("planted", "paper", path) == expected


def test_in_a_folder_name_and_protocol_come_before_the_name(tmp_path: Path) -> None:
    write(tmp_path / "amusic-paper.toml", EASE.format(100.0))
    write(tmp_path / "amusic.toml", EASE.format(30.0))
    assert tables_for("amusic", "paper", tmp_path) == {"ease": {"l2": 100.0}}
    assert tables_for("amusic", "clean", tmp_path) == {"ease": {"l2": 30.0}}


def test_a_file_says_the_sizes_of_its_data_and_what_is_said_wins(tmp_path: Path) -> None:
    write(
        tmp_path / "amusic.toml", "[reproduce]\nlocal_models = 100\nseeds = 2\n" + EASE.format(30.0)
    )
    write(tmp_path / "amusic-paper.toml", "[reproduce]\nseeds = 5\n")
    write(tmp_path / "ml-1m.toml", EASE.format(30.0))
    assert sizes_for("amusic", "clean", tmp_path, {}) == Sizes(local_models=100, seeds=2)
    assert sizes_for("amusic", "paper", tmp_path, {}) == Sizes(local_models=100, seeds=5)
    assert sizes_for("amusic", "clean", tmp_path, {"seeds": 7}) == Sizes(local_models=100, seeds=7)
    assert sizes_for("ml-1m", "clean", tmp_path, {}) == Sizes()
    assert sizes_for("planted", "clean", None, {"seeds": 1}) == replace(SMALL, seeds=1)
    assert tables_for("amusic", "clean", tmp_path) == {"ease": {"l2": 30.0}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seds = 2", r"all\.toml: unknown option 'reproduce\.seds'; did you mean 'seeds'"),
        ("colour = 2", r"unknown option 'reproduce\.colour'; there are local_models, "),
        ('seeds = "two"', r"all\.toml: reproduce\.seeds: expected a whole number ≥ 1, found 'two'"),
        ("seeds = 1.5", "seeds: expected a whole number ≥ 1, found 1.5"),
        ("seeds = true", "seeds: expected a whole number ≥ 1, found True"),
        ('auto_seconds = "long"', "auto_seconds: expected a number above 0, found 'long'"),
        ("auto_seconds = true", "auto_seconds: expected a number above 0, found True"),
    ],
)
def test_sizes_that_are_none_are_refused_in_one_line(text: str, told: str, tmp_path: Path) -> None:
    path = write(tmp_path / "all.toml", f"[reproduce]\n{text}\n")
    for said in ({}, {"seeds": 2}):  # what the command line says hides no mistake
        with pytest.raises(ConfigError, match=told):
            sizes_for("amusic", "clean", path, said)


def test_sizes_that_are_no_table_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "all.toml", "reproduce = 3\n")
    with pytest.raises(ConfigError, match=r"all\.toml: reproduce: expected a table of sizes"):
        sizes_for("amusic", "clean", path, {})


def test_a_folder_without_settings_of_the_data_is_refused_with_the_names_looked_for(
    tmp_path: Path,
) -> None:
    write(tmp_path / "amusic-paper.toml", EASE.format(100.0))
    with pytest.raises(ConfigError, match=r"expected amusic\.toml or amusic-clean\.toml in it"):
        tables_for("amusic", "clean", tmp_path)
    with pytest.raises(ConfigError, match=r"expected planted\.toml or planted-clean\.toml in it"):
        tables_for("planted", "clean", tmp_path)


def test_the_sections_of_other_commands_and_models_are_passed_over(tmp_path: Path) -> None:
    text = '[compare]\nmodels = ["ease"]\nprotocol = "clean"\n[tune]\ntrials = 3\n' + EASE.format(
        3.0
    )
    assert tables_for("amusic", "clean", write(tmp_path / "s.toml", text)) == {"ease": {"l2": 3.0}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such file"),
        ("[ease\n", "not TOML"),
        ("[eaze]\nl2 = 3.0\n", "did you mean 'ease'"),
        (
            "[ease]\nl2 = [30.0, 100.0]\n",
            r"ease\.l2: expected one value, found a list .*\(30\.0, 100\.0\); keep one",
        ),
        ("[loca-vae]\nbase.latent = [8]\n", r"loca-vae\.base\.latent: expected one value"),
        ("[mult-dae]\nseed = 4\n", r"mult-dae\.seed: every model gets the seeds that --seeds says"),
        ("[loca-vae.base]\nseed = 4\n", r"loca-vae\.base\.seed: every model gets the seeds"),
    ],
    ids=[
        "missing",
        "no TOML",
        "unknown model",
        "a list",
        "a list inside",
        "a seed",
        "a seed inside",
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, text: str | None, told: str
) -> None:
    path = tmp_path / "settings.toml" if text is None else write(tmp_path / "settings.toml", text)
    with pytest.raises(ConfigError, match=told) as caught:
        tables_for("amusic", "clean", path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


NAMES = ("popularity", "ease", "loca-ease", "ensemble-ease")


@pytest.fixture
def bench(planted: PlantedData) -> Benchmark:
    return tiny_benchmark(planted)


def test_tuning_gives_tables_and_keeps_them_as_a_file_of_settings(
    bench: Benchmark, tmp_path: Path
) -> None:
    found = tune_models(bench, NAMES, Budget(trials=1), tmp_path, processes=1, resume=False)
    kept = tables_for("any", "clean", tmp_path / "tiny-clean" / "settings.toml")
    assert {"ease", "loca-ease"} <= set(kept) <= set(NAMES)
    assert found == {**bench.tables, **kept}
    assert found["loca-ease"]["communities"]["n"] == bench.sizes.local_models
    assert found["loca-ease"]["communities"]["kind"] == "kernels"
    tuned = replace(bench, tables=found)
    for name in NAMES:
        tuned.model(name)
    assert not [one for one in (tmp_path / "tiny-clean").iterdir() if one.name.endswith(".new")]


def test_what_tuning_found_is_found_again(
    bench: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tune_models(bench, NAMES, Budget(trials=1), tmp_path, processes=1, resume=False)
    monkeypatch.setattr(
        "loca.experiments.runs.Run.execute", lambda *_, **__: pytest.fail("tuned again")
    )
    assert tune_models(bench, NAMES, Budget(trials=1), tmp_path, processes=1, resume=True) == found


def test_only_the_named_models_are_tuned_and_the_others_keep_their_settings(
    bench: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[str] = []
    really = benchmark_file.compare

    def note(templates: Any, *asked: Any, **more: Any) -> Comparison:
        tuned.extend(templates)
        return really(templates, *asked, **more)

    monkeypatch.setattr(benchmark_file, "compare", note)
    found = tune_models(bench, ("ease",), Budget(trials=1), tmp_path, processes=1, resume=False)
    assert tuned == ["ease"]
    assert set(found["ease"]) >= {"l2"}
    assert {name: table for name, table in found.items() if name != "ease"} == dict(bench.tables)


def test_a_model_that_could_not_be_tuned_is_told_and_never_measured_with_its_defaults(
    bench: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = benchmark_file.compare

    def fail(*asked: Any, **more: Any) -> Comparison:
        return replace(really(*asked, **more), failed={"rec-vae": "out of memory"})

    monkeypatch.setattr(benchmark_file, "compare", fail)
    with pytest.raises(
        LocaError,
        match=r"tiny-clean: tuning failed: rec-vae: out of memory; .*--resume tries again",
    ):
        tune_models(
            bench, ("popularity", "ease"), Budget(trials=1), tmp_path, processes=1, resume=False
        )
