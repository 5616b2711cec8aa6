"""A run is executed as the protocol says, stored to the last bit, found again, and never taken for another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import loca
from loca.communities.embeddings import GivenEmbeddings
from loca.communities.kernel import Kernels
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.experiments.comparison import compare
from loca.experiments.runs import ComparedModel, Run, RunStore
from loca.local.combiner import FixedShare
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import TrainingData, get_params
from loca.persistence.checkpoint import FINGERPRINT_KEY, Checkpoint
from loca.persistence.manifest import fingerprint
from loca.search_space import Among, Budget, Space
from loca.tuning.model_selection import EvaluationProtocol, ProtocolName, run_protocol

RIDGES = Space({"l2": Among((1.0, 30.0, 1000.0))})
NOT_REFITTED = EvaluationProtocol(at=(5, 20), refit=False)
TUNED = EvaluationProtocol(at=(5, 20), budget=Budget(trials=3))


def run_of(
    split: Split,
    name: str = "ease",
    *candidates: Any,
    protocol: EvaluationProtocol | None = None,
    **more: Any,
) -> Run:
    return Run(
        name=name,
        candidates=candidates or (EASE(),),
        protocol=protocol or EvaluationProtocol(at=(5, 20)),
        data=fingerprint(split),
        **more,
    )


def as_reported(measured: ComparedModel) -> dict[str, Any]:
    """All that a run says, with arrays as lists."""
    evaluation, tuning = measured.evaluation, measured.tuning
    return {
        "evaluation": {
            **vars(evaluation),
            "users": evaluation.users.tolist(),
            "lists": None,
            "_intervals": None,
        }
        | {"values": {name: values.tolist() for name, values in evaluation.values.items()}},
        "rest": {
            name: value
            for name, value in vars(measured).items()
            if name not in ("evaluation", "tuning")
        },
        "tuning": None if tuning is None else {**vars(tuning), "best": get_params(tuning.best)},
    }


def test_a_run_is_its_model_put_to_the_protocol(planted_split: Split) -> None:
    measured, model = run_of(planted_split, "ease", EASE(l2=1.0), EASE(l2=100.0)).execute(
        planted_split
    )
    expected = run_protocol(
        [EASE(l2=1.0), EASE(l2=100.0)], planted_split, EvaluationProtocol(at=(5, 20))
    )
    assert (measured.chosen, measured.tuning) == (expected.chosen, None)
    assert np.array_equal(
        measured.evaluation.values["ndcg@20"], expected.evaluation.values["ndcg@20"]
    )
    assert model.train_data_ is planted_split.train_and_validation
    assert measured.settings == {"l2": [1.0, 100.0][expected.chosen]}


def test_a_run_says_how_many_models_there_are_and_what_they_share(planted_split: Split) -> None:
    kernels = Kernels(n=4, answer_bandwidth=0.5)
    model = Loca(base=EASE(), communities=kernels, combiner=FixedShare(0.0))
    measured, _ = run_of(planted_split, "loca-ease", model).execute(planted_split)
    assert (measured.size, measured.is_control) == (4, False)
    assert measured.found["alpha"] == 0.0
    assert 0 < measured.found["coverage"] <= 1
    assert 0 < measured.found["answer_share"] < measured.found["train_share"] <= 1
    ensemble, _ = run_of(planted_split, "e", Ensemble(base=EASE(), models=3)).execute(planted_split)
    single, _ = run_of(planted_split).execute(planted_split)
    assert (ensemble.size, single.size) == (3, None)


@pytest.mark.parametrize("protocol", ["clean", "paper"])
def test_a_run_with_a_space_is_tuned_where_choices_are_made(
    planted_split: Split, protocol: ProtocolName
) -> None:
    tuned = replace(TUNED, protocol=protocol)
    measured, _ = run_of(planted_split, protocol=tuned, space=RIDGES).execute(planted_split)
    candidates = [EASE(l2=l2) for l2 in (1.0, 30.0, 1000.0)]
    untuned = replace(tuned, budget=None)
    chosen, _ = run_of(planted_split, "ease", *candidates, protocol=untuned).execute(planted_split)
    assert measured.tuning is not None
    assert measured.tuning.score >= max(one.score for one in chosen.tried)
    assert measured.tried[0].score == pytest.approx(measured.tuning.score)
    assert (measured.tuning.finished, measured.settings) == (3, measured.tuning.settings)
    assert len(measured.tried) == 1


def test_a_stored_run_comes_back_to_the_last_bit(planted_split: Split, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    tuned = EvaluationProtocol(at=(5, 20), recency="auto", budget=Budget(trials=1))
    runs = [
        run_of(planted_split, protocol=tuned, space=RIDGES),
        run_of(
            planted_split, "with 2/3", EASE(l2=5.0), EASE(), protocol=replace(tuned, budget=None)
        ),
        run_of(planted_split, "loca-ease", Loca(base=EASE(), communities=Kernels(n=3))),
    ]
    for run in runs:
        with store.opened([run.name], resume=True):
            computed, _ = store.execute(run, planted_split)
        found = store.find(run)
        assert found is not None
        assert as_reported(found) == as_reported(computed)
        assert found.evaluation.intervals() == computed.evaluation.intervals()
        assert found.evaluation.users.dtype == computed.evaluation.users.dtype
        assert found.evaluation.lists.shape == (len(found.evaluation.users), 0)
    assert sorted(one.name for one in (tmp_path / "runs").iterdir()) == [
        "work-ease.safetensors",
        "work-loca-ease.safetensors",
        "work-with%202%2F3.safetensors",
    ]
    assert [one.name for one in (tmp_path / "studies").iterdir()] == ["ease.db"]


@pytest.mark.parametrize("keeps_begun", [False, True])
def test_runs_that_share_parts_fit_them_once_and_give_the_same_numbers(
    keeps_begun: bool, planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(name: str, *, shares_parts: bool) -> list[Run]:
        network = MultVAE(latent=8, epochs=3, batch_size=100)
        models = [
            Loca(base=network, communities=Kernels(n=2, answer_bandwidth=width), seed=1)
            for width in (0.3, 0.6)
        ]
        return [
            run_of(
                planted_split,
                f"{name} {place}",
                one,
                protocol=NOT_REFITTED,
                shares_parts=shares_parts,
            )
            for place, one in enumerate(models)
        ]

    fits: list[str] = []
    fit = MultVAE.fit
    monkeypatch.setattr(
        MultVAE,
        "fit",
        lambda self, *given, **named: (fits.append("fit"), fit(self, *given, **named))[1],
    )
    store, numbers = RunStore(tmp_path, keeps_begun=keeps_begun), []
    for shares_parts, expected in ((False, 2), (True, 1)):
        fits.clear()
        own = runs(f"shared {shares_parts}", shares_parts=shares_parts)
        with store.opened((), resume=True):
            store.begin()
            measured = [store.execute(run, planted_split)[0] for run in own]
            assert (tmp_path / "parts").exists() == shares_parts
            store.finish()
        assert len(fits) == expected
        numbers.append([one.evaluation.values["ndcg@20"].tolist() for one in measured])
        assert all(store.find(run) is not None for run in own)
    assert numbers[0] == numbers[1]
    assert numbers[0][0] != numbers[0][1]
    assert not (tmp_path / "parts").exists()
    first, shared = runs("same", shares_parts=False)[0], runs("same", shares_parts=True)[0]
    assert first.fingerprint() == shared.fingerprint()


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"candidates": (EASE(l2=3.0),)}, "l2: 100.0 then, 3.0 now"),
        ({"candidates": (EASE(), EASE(l2=3.0))}, "candidates: 1 then, 2 now"),
        ({"candidates": (Popularity(),)}, "model: EASE then, Popularity now"),
        (
            {"protocol": EvaluationProtocol(at=(5, 20), protocol="paper")},
            "protocol: clean then, paper now",
        ),
        ({"protocol": EvaluationProtocol(at=(5, 20), refit=False)}, "refit: True then, False now"),
        ({"protocol": EvaluationProtocol(at=(5, 20), seed=4)}, "compare.seed: 0 then, 4 now"),
        (
            {"protocol": EvaluationProtocol(at=(5, 20), recency="own")},
            "recency: given then, own now",
        ),
        ({"protocol": EvaluationProtocol(at=(5, 10))}, "at: 5, 20 then, 5, 10 now"),
        ({"protocol": TUNED, "space": RIDGES}, "budget.trials: not set then, 3 now"),
        ({"data": "another"}, "the data have changed"),
    ],
)
def test_a_run_of_another_fingerprint_is_refused(
    planted_split: Split, tmp_path: Path, change: dict[str, Any], difference: str
) -> None:
    store, run = RunStore(tmp_path), run_of(planted_split, "ease", EASE(l2=100.0))
    store.execute(run, planted_split)
    with pytest.raises(ConfigError) as refused:
        store.find(replace(run, **change))
    assert str(refused.value) == (
        f"{tmp_path} holds results of ease that are not those requested: {difference}; start over with --fresh, or "
        "choose another folder"
    )
    assert store.find(run) is not None


def test_a_run_is_found_again_whatever_device_it_is_for(
    planted_split: Split, tmp_path: Path
) -> None:
    store, run = RunStore(tmp_path), run_of(planted_split, "ease", EASE(l2=100.0))
    store.execute(run, planted_split)
    assert store.find(replace(run, protocol=replace(run.protocol, device="cpu"))) is not None


class Located(EASE):
    """Writes down the device of each fit."""

    devices: ClassVar[list[str]] = []

    def _fit(self, data: TrainingData) -> None:
        self.devices.append(data.device)
        super()._fit(data)


@pytest.mark.parametrize("refit", [True, False])
def test_all_fits_of_a_run_are_on_the_device_of_its_protocol(
    planted_split: Split, refit: bool
) -> None:
    Located.devices.clear()
    protocol = EvaluationProtocol(at=(5, 20), refit=refit, device="cpu")
    run = run_of(planted_split, "ease", Located(), protocol=protocol)
    measured, _ = run.execute(planted_split)
    replace(run, repeats=measured).execute(planted_split)
    assert Located.devices == ["cpu"] * (3 if refit else 2)


class Placed(Popularity):
    """A model with a long array among its parameters."""

    def __init__(self, *, places: Any = None) -> None:
        super().__init__()
        self.places = places


def test_a_run_is_another_where_one_number_in_the_middle_of_an_array_is(
    planted_split: Split,
) -> None:
    first, second = np.zeros(5000), np.zeros(5000)
    second[2500] = 1.0
    fingerprints = [
        run_of(planted_split, "placed", Placed(places=one)).fingerprint()
        for one in (first, first.copy(), second)
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_another_version_of_loca_is_refused(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = RunStore(tmp_path), run_of(planted_split)
    store.execute(run, planted_split)
    monkeypatch.setattr(loca, "__version__", "99.0", raising=False)
    with pytest.raises(ConfigError, match=r"this is loca 99\.0"):
        store.find(run)


def test_a_damaged_run_is_computed_again(planted_split: Split, tmp_path: Path) -> None:
    store, run = RunStore(tmp_path), run_of(planted_split)
    store.execute(run, planted_split)
    stored = tmp_path / "runs" / "work-ease.safetensors"
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-9] + b"\0" + whole[-8:])
    assert store.find(run) is None
    Checkpoint(tmp_path / "runs").save("ease", {FINGERPRINT_KEY: run.fingerprint()})
    assert store.find(run) is None
    stored.write_bytes(whole)
    assert store.find(run) is not None


def test_the_digest_of_a_split_changes_with_any_part_of_it(planted_split: Split) -> None:
    validation = planted_split.validation
    assert validation is not None
    others = [
        replace(planted_split, validation=None),
        replace(planted_split, train=planted_split.train_and_validation),
        replace(planted_split, train_and_validation=planted_split.train),
        replace(planted_split, test=validation),
        replace(planted_split, validation=planted_split.test),
        planted_split.with_recency(Recency(3)),
    ]
    digests = {fingerprint(one) for one in (planted_split, *others)}
    assert len(digests) == 7
    assert fingerprint(replace(planted_split)) in digests


class Counted(EASE):
    """EASE that counts its fits, and may break at one of them."""

    fits = 0
    breaks_at = 99

    def fit(self, *data: Any, **more: Any) -> Any:
        if Counted.fits == Counted.breaks_at:
            raise ZeroDivisionError
        Counted.fits += 1
        return super().fit(*data, **more)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    monkeypatch.setattr(Counted, "fits", 0)
    monkeypatch.setattr(Counted, "breaks_at", 99)
    return Counted


def broken_at(
    counted: type[Counted], fit: int, models: dict[str, Any], split: Split, folder: Path
) -> None:
    counted.fits, counted.breaks_at = 0, fit
    with pytest.raises(ZeroDivisionError):
        compare(models, split, at=(5,), keep_in=folder)
    counted.fits, counted.breaks_at = 0, 99


def test_no_finished_model_is_computed_twice_and_an_unfinished_one_goes_on(
    planted_split: Split, tmp_path: Path, counted: type[Counted]
) -> None:
    models = {name: [counted(l2=l2), counted(l2=2 * l2)] for name, l2 in (("a", 1.0), ("b", 9.0))}
    unbroken = compare(models, planted_split, at=(5,))
    assert counted.fits == 6
    broken_at(counted, 4, models, planted_split, tmp_path)  # after one candidate of the second
    again = compare(models, planted_split, at=(5,), keep_in=tmp_path)
    assert counted.fits == 2
    for ours, theirs in zip(again.measured, unbroken.measured, strict=True):
        assert ours.parameters == theirs.parameters
        assert np.array_equal(ours.evaluation.values["ndcg@5"], theirs.evaluation.values["ndcg@5"])
    assert again.differences == unbroken.differences
    counted.fits = 0
    more = compare({**models, "c": counted()}, planted_split, at=(5,), keep_in=tmp_path, keep=["b"])
    assert counted.fits == 5, "the new one, and the one whose fitted model is wanted"
    assert list(more.models) == ["b"]


def test_an_unfinished_comparison_is_marked_until_it_is_finished(
    planted_split: Split, tmp_path: Path, counted: type[Counted]
) -> None:
    models, store = {"a": counted(), "b": counted(l2=3.0)}, RunStore(tmp_path)
    store.check_start(resume=False)
    broken_at(counted, 2, models, planted_split, tmp_path)
    with pytest.raises(
        ConfigError,
        match="holds an unfinished comparison; add --resume to go on with it, or --fresh",
    ):
        store.check_start(resume=False)
    store.check_start(resume=True)
    store.check_start(resume=False, fresh=True)
    compare(models, planted_split, at=(5,), keep_in=tmp_path)
    store.check_start(resume=False)
    with pytest.raises(ConfigError, match="not those requested"):
        compare({"a": counted(l2=5.0)}, planted_split, at=(5,), keep_in=tmp_path)
    store.check_start(resume=False)


def test_without_resume_all_is_computed_anew(
    planted_split: Split, tmp_path: Path, counted: type[Counted]
) -> None:
    compare({"a": counted(), "b": counted(l2=3.0)}, planted_split, at=(5,), keep_in=tmp_path)
    (tmp_path / "runs" / "thesis.tex").write_text("years of work")
    counted.fits = 0
    compare({"a": counted(l2=7.0)}, planted_split, at=(5,), keep_in=tmp_path, resume=False)
    assert counted.fits == 2
    assert sorted(one.name for one in (tmp_path / "runs").iterdir()) == [
        "thesis.tex",
        "work-a.safetensors",
    ]


def test_two_runs_do_not_share_a_folder(planted_split: Split, tmp_path: Path) -> None:
    with (
        RunStore(tmp_path).opened([], resume=True),
        pytest.raises(ModelFileError, match="another run keeps its unfinished work there"),
    ):
        compare({"ease": EASE()}, planted_split, at=(5,), keep_in=tmp_path)


def test_a_mistake_leaves_no_unfinished_comparison(planted_split: Split, tmp_path: Path) -> None:
    embeddings = GivenEmbeddings(embeddings=np.ones((3, 2), dtype=np.float32))
    model = Loca(base=EASE(), communities=Kernels(n=2, embedding=embeddings))
    with pytest.raises(DataError, match="expected 400 rows, one per user, found 3"):
        compare({"loca": model}, planted_split, at=(5,), keep_in=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_nothing_to_choose_from_and_an_unknown_space_are_refused(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="nothing to choose from"):
        compare({"x": []}, planted_split)
    with pytest.raises(ConfigError, match="unknown space 'wid'; did you mean 'wide'"):
        EvaluationProtocol(space="wid")  # type: ignore[arg-type]
