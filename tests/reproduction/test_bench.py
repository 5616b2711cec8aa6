"""The models of a bench: by their settings, made once for each seed, and given out as copies."""

from __future__ import annotations

import pytest
from tiny_bench import tiny_bench

import loca.reproduction.benchmark as bench_file
from loca.config.model_factory import build_models
from loca.data.synthetic import PlantedData
from loca.models.recommender import get_params


def test_models_are_made_once_for_each_seed_and_given_out_as_copies(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(bench_file, "build_models", lambda *asked: (seeds.append(asked[-1]), build_models(*asked))[1])
    bench = tiny_bench(planted)
    first, again, other = bench.model("mult-vae"), bench.model("mult-vae"), bench.model("mult-vae", 1)
    bench.model("loca-vae")
    assert seeds == [0, 1]
    assert first is not again
    assert get_params(first) == get_params(again)
    assert (get_params(first)["latent"], get_params(first)["seed"], get_params(other)["seed"]) == (8, 0, 1)
    first.latent = 99  # type: ignore[attr-defined]
    assert get_params(bench.model("mult-vae"))["latent"] == 8
    inside, next_inside = bench.model("loca-vae"), bench.model("loca-vae")
    assert get_params(inside)["base"] is not get_params(next_inside)["base"]
