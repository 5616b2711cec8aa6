"""A comparison sets the right models against each other and reads the same as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from loca.communities.best_of import BestOf
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.errors import ConfigError, DataError
from loca.evaluation.evaluate import evaluate
from loca.evaluation.significance import holm, paired_difference
from loca.experiments.comparison import Comparison, compare, pairs_to_compare
from loca.experiments.report import check_file, settings_file, write_tables
from loca.local.combiner import FixedShare
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender, clone
from loca.paper.permuted import Permuted
from loca.text_table import TextTable, finite
from scripted_models import RIGHT_ON_TEST, RIGHT_ON_VALIDATION, SECOND, Scripted, scripted_split


@pytest.fixture(scope="module")
def comparison(planted_split: Split) -> Comparison:
    models = {
        "popularity": Popularity(),
        "ease": [EASE(l2=1.0), EASE(l2=100.0)],
        "ensemble-ease": Ensemble(base=EASE(l2=100.0), models=3),
        "loca-ease": Loca(base=EASE(l2=100.0), communities=Kernels(n=3)),
    }
    return compare(models, planted_split, at=(5, 20), keep=["ease"], seed=1)


def test_each_loca_meets_its_base_and_its_ensemble_and_all_meet_the_control(
    comparison: Comparison,
) -> None:
    assert [(one.first, one.second) for one in comparison.differences] == [
        ("loca-ease", "ease"),
        ("loca-ease", "ensemble-ease"),
        ("popularity", "ease"),
        ("ensemble-ease", "ease"),
    ]
    assert comparison.control == "ease"
    assert comparison.metric == "ndcg@20"


def test_figures_are_those_of_the_models_themselves(
    comparison: Comparison, planted_split: Split
) -> None:
    chosen = comparison.of("ease").parameters["l2"]
    ease = evaluate(
        EASE(l2=chosen).fit(planted_split.train_and_validation), planted_split.test, at=(5, 20)
    )
    popular = evaluate(
        Popularity().fit(planted_split.train_and_validation), planted_split.test, at=(5, 20)
    )
    assert np.array_equal(
        comparison.of("ease").evaluation.values["ndcg@20"], ease.values["ndcg@20"]
    )
    expected = paired_difference(popular.values["ndcg@20"], ease.values["ndcg@20"], seed=1)
    assert comparison.difference("popularity", "ease").paired == expected


def test_p_values_are_corrected_over_all_printed_differences(comparison: Comparison) -> None:
    by_t = holm(one.paired.t_p for one in comparison.differences)
    by_wilcoxon = holm(one.paired.wilcoxon_p for one in comparison.differences)
    assert [one.t_p_holm for one in comparison.differences] == by_t.tolist()
    assert [one.wilcoxon_p_holm for one in comparison.differences] == by_wilcoxon.tolist()
    assert by_t.tolist() != by_wilcoxon.tolist()


def test_both_tests_stand_in_text_markdown_csv_and_json(comparison: Comparison) -> None:
    assert comparison.tables()[1].header[4:7] == ("t", "p t (Holm)", "p Wilcoxon (Holm)")
    for text in (str(comparison), comparison.to_markdown()):
        assert "p Wilcoxon (Holm)" in text
    rows = list(csv.DictReader(io.StringIO(comparison.differences_to_csv())))
    written = comparison.to_json()["differences"]
    assert len(rows) == len(written) == 4
    for one, row, document in zip(comparison.differences, rows, written, strict=True):
        assert (row["first"], row["second"]) == (one.first, one.second)
        assert float(row["t_p_holm"]) == document["t_p_holm"] == one.t_p_holm
        assert float(row["wilcoxon_p_holm"]) == document["wilcoxon_p_holm"] == one.wilcoxon_p_holm


def test_a_p_value_of_0_is_called_small(comparison: Comparison) -> None:
    first, *_ = comparison.differences
    certain = replace(comparison, differences=(replace(first, t_p_holm=0.0, wilcoxon_p_holm=0.0),))
    assert certain.tables()[1].rows[0][5:7] == ("< 1e-300", "< 1e-300")
    mixed = replace(comparison, differences=(replace(first, t_p_holm=0.25, wilcoxon_p_holm=0.125),))
    assert mixed.tables()[1].rows[0][5:7] == ("0.25", "0.12")


def test_ndcg_at_100_is_compared_where_it_is_measured_else_the_longest(
    planted_split: Split,
) -> None:
    models = {"popularity": Popularity(), "ease": EASE()}
    assert compare(models, planted_split, at=(5, 100, 200)).metric == "ndcg@100"
    assert compare(models, planted_split, at=(5, 200)).metric == "ndcg@200"


def test_a_single_test_user_gets_the_table_and_the_reason_why_there_is_no_more(
    planted_split: Split,
) -> None:
    targets = planted_split.test.targets
    one_user = replace(planted_split.test, targets=targets.where(targets.user_rows() == 7))
    models = {"popularity": Popularity(), "ease": EASE()}
    found = compare(models, replace(planted_split, test=one_user), at=(5,))
    assert found.differences == ()
    reason = "no differences between the models: they need at least 2 test users, found 1"
    assert str(found).count(reason) == found.to_markdown().count(reason) == 1
    assert "\nease " in str(found)
    assert found.to_json()["no_differences"] == reason
    assert len(found.differences_to_csv().splitlines()) == 1
    assert "no_differences" not in compare(models, planted_split, at=(5,)).to_json()


def test_only_the_models_to_keep_are_returned(comparison: Comparison, planted_split: Split) -> None:
    assert list(comparison.models) == ["ease"]
    assert comparison.models["ease"].train_data_ is planted_split.train_and_validation


@pytest.mark.parametrize("refit", [True, False])
def test_the_control_is_the_best_single_model_on_validation_not_on_test(refit: bool) -> None:
    models = {
        "test's": Scripted(script=(RIGHT_ON_TEST,)),
        "validation's": Scripted(script=(RIGHT_ON_VALIDATION,)),
    }
    found = compare(models, scripted_split(), at=(5,), refit=refit)
    reached = {
        one.name: (one.tried[one.chosen].score, one.evaluation.means()["ndcg@5"])
        for one in found.measured
    }
    assert reached == {
        "test's": pytest.approx((SECOND, 1.0)),
        "validation's": pytest.approx((1.0, SECOND)),
    }
    assert found.control == "validation's"
    assert [(one.first, one.second) for one in found.differences] == [("test's", "validation's")]


def test_a_control_may_be_named(planted_split: Split) -> None:
    models = {"popularity": Popularity(), "ease": EASE()}
    named = compare(models, planted_split, at=(5,), control="popularity")
    assert [(one.first, one.second) for one in named.differences] == [("ease", "popularity")]
    with pytest.raises(ConfigError, match="no model 'eas' to compare with; did you mean 'ease'"):
        compare(models, planted_split, control="eas")


def test_asking_for_what_was_not_compared_is_refused(comparison: Comparison) -> None:
    with pytest.raises(ConfigError, match="no model 'eas' in this comparison"):
        comparison.of("eas")
    with pytest.raises(
        ConfigError,
        match="'ease' was not compared with 'popularity'; compared were loca-ease − ease,",
    ):
        comparison.difference("ease", "popularity")


def test_models_in_a_list_are_named_by_what_they_are(planted_split: Split) -> None:
    models = [
        EASE(),
        EASE(l2=5.0),
        Ensemble(base=EASE(), models=2),
        Loca(base=EASE(), communities=Kernels(n=2)),
    ]
    found = compare(models, planted_split, at=(5,))
    assert [one.name for one in found.measured] == [
        "EASE",
        "EASE(l2=5.0)",
        "Ensemble(EASE)",
        "Loca(EASE)",
    ]
    assert ("Loca(EASE)", "EASE(l2=5.0)") in [(one.first, one.second) for one in found.differences]


def test_local_models_alone_have_no_control(planted_split: Split) -> None:
    found = compare([Ensemble(base=EASE(), models=2)], planted_split, at=(5,))
    assert found.control is None
    assert found.differences == ()
    assert "difference" not in str(found)
    assert "difference" not in found.to_markdown()


def test_the_text_shows_every_model_and_what_was_chosen(comparison: Comparison) -> None:
    text = str(comparison)
    assert text.startswith(
        "protocol clean: chosen on validation, refitted on train + validation, tested once"
    )
    for name in ("popularity", "ease", "ensemble-ease", "loca-ease"):
        assert f"\n{name} " in text
    assert "ease chose l2 " in text
    assert "(against l2 " in text


def test_csv_and_json_hold_the_same_means(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    document = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert document["is_result"] is True
    for model in document["models"]:
        for metric, figure in model["metrics"].items():
            row = next(
                one for one in rows if (one["model"], one["metric"]) == (model["name"], metric)
            )
            assert float(row["mean"]) == figure["mean"]
            assert figure["low"] <= figure["mean"] <= figure["high"]
    ease = document["models"][1]
    assert [one["settings"] for one in ease["tried"]] == [{"l2": 1.0}, {"l2": 100.0}]
    assert document["differences"][0]["first"] == "loca-ease"


def test_markdown_has_both_tables(comparison: Comparison) -> None:
    text = comparison.to_markdown()
    assert sum(line.startswith("| --- |") for line in text.splitlines()) == 2
    assert "| loca-ease − ease |" in text


def test_protocol_paper_is_marked_loudly_everywhere(planted_split: Split) -> None:
    found = compare(
        {"ease": [EASE(l2=1.0), EASE()], "popularity": Popularity()},
        planted_split,
        protocol="paper",
    )
    assert "SELECTED ON TEST: NOT A RESULT" in str(found).splitlines()[0]
    assert "SELECTED ON TEST: NOT A RESULT" in found.to_markdown()
    assert found.to_json()["is_result"] is False
    assert found.to_json()["warning"] == "SELECTED ON TEST: NOT A RESULT"
    assert {row["is_result"] for row in csv.DictReader(io.StringIO(found.to_csv()))} == {"False"}


def test_a_worse_model_is_called_worse_and_a_twin_equal(planted_split: Split) -> None:
    found = compare(
        {"ease": EASE(), "twin": EASE(), "popularity": Popularity()}, planted_split, control="ease"
    )
    verdicts = {row[0]: row[-1] for row in found.tables()[1].rows}
    assert verdicts == {"twin − ease": "equal", "popularity − ease": "worse"}
    better = compare(
        {"ease": EASE(), "popularity": Popularity()}, planted_split, control="popularity"
    )
    assert better.tables()[1].rows[0][-1] == "better"


def test_tables_are_written_into_a_folder(comparison: Comparison, tmp_path: Path) -> None:
    write_tables(comparison, tmp_path / "new" / "results")
    names = sorted(one.name for one in (tmp_path / "new" / "results").iterdir())
    assert names == [
        "comparison.csv",
        "comparison.json",
        "comparison.md",
        "comparison.txt",
        "differences.csv",
    ]
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_tables(comparison, tmp_path / "file" / "results")
    with pytest.raises(ConfigError, match="expected a folder to write into, found a file"):
        check_file(tmp_path / "file")
    check_file(None)


def test_the_budget_is_reported_everywhere(comparison: Comparison, planted_split: Split) -> None:
    line = "settings to choose from: popularity 1, ease 2, ensemble-ease 1, loca-ease 1"
    assert str(comparison).splitlines()[1] == f"budget: {line}"
    assert f"\nbudget: {line}\n" in comparison.to_markdown()
    assert comparison.to_json()["budget"] == {"text": line}
    equal = compare({"popularity": Popularity(), "ease": EASE()}, planted_split, at=(5,))
    assert str(equal).splitlines()[1] == "budget: 1 setting per model"
    assert [row[-2] for row in comparison.tables()[0].rows] == ["1", "2", "1", "1"]


def test_the_settings_of_all_models_are_written_as_a_settings_file_takes_them(
    comparison: Comparison,
) -> None:
    written = tomllib.loads(settings_file(comparison))
    assert written["compare"]["models"] == ["popularity", "ease", "ensemble-ease", "loca-ease"]
    assert written["ease"] == {"l2": comparison.of("ease").parameters["l2"]}
    assert written["loca-ease"]["communities"] == {"kind": "kernels", "n": 3}
    assert written["ensemble-ease"]["models"] == 3
    assert "popularity" not in written


def test_models_that_a_settings_file_cannot_name_are_left_out_of_it(planted_split: Split) -> None:
    found = compare([EASE(), EASE(l2=2.0)], planted_split, at=(5,))
    assert tomllib.loads(settings_file(found)) == {}


def test_a_text_table_is_aligned() -> None:
    table = TextTable(("name", "n"), (("a", "1"), ("bc", "10")))
    assert table.plain() == "name   n\na      1\nbc    10"
    assert table.markdown() == "| name | n |\n| --- | ---: |\n| a | 1 |\n| bc | 10 |"


def test_json_values_are_finite() -> None:
    assert finite({"a": [1.0, float("inf")], "b": float("nan"), "c": "x"}) == {
        "a": [1.0, None],
        "b": None,
        "c": "x",
    }


def test_every_model_chooses_its_own_recency_and_the_report_says_which(
    drifting_split: Split,
) -> None:
    models = {"ease": EASE(), "popularity": Popularity()}
    found = compare(models, drifting_split, recency="auto", keep=("ease",), control="popularity")
    ease, popular = found.of("ease"), found.of("popularity")
    choice = ease.tried[0].recency
    assert choice is not None
    assert ease.recency is not None
    assert (ease.recency, popular.recency) == (choice.recency, None)
    assert found.models["ease"].train_data_.recency == ease.recency  # type: ignore[union-attr]
    expected = evaluate(
        EASE().fit(drifting_split.train_and_validation),
        drifting_split.test.with_recency(ease.recency),
    ).values["ndcg@100"]
    assert found.difference("ease", "popularity").paired.mean == pytest.approx(
        (expected - popular.evaluation.values["ndcg@100"]).mean()
    )
    line = f"ease chose recency: {ease.recency}; {choice.score:.4f} on validation, {choice.score_without:.4f} without"
    for text in (str(found), found.to_markdown()):
        assert line in text
        assert "popularity chose recency: none; " in text
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))["models"]
    assert [one["recency"] for one in written] == [asdict(ease.recency), None]
    assert written[0]["tried"][0]["recency_choice"]["score"] == choice.score
    assert written[0]["tried"][0]["recency_choice"]["score_without"] == choice.score_without


def test_a_given_recency_is_said_too_and_nothing_is_chosen(planted_split: Split) -> None:
    found = compare({"ease": EASE()}, planted_split.with_recency(Recency(2)))
    assert found.of("ease").recency == Recency(2)
    assert found.to_json()["models"][0]["recency"] == asdict(Recency(2))
    assert "recency" not in str(found)
    assert "recency_choice" not in found.to_json()["models"][0]["tried"][0]


def test_a_recency_cannot_be_chosen_on_test(planted_split: Split) -> None:
    with pytest.raises(
        ConfigError, match="recency: auto is chosen on validation, which the protocol paper has not"
    ):
        compare({"ease": EASE()}, planted_split, protocol="paper", recency="auto")


def a_network(epochs: int) -> MultVAE:
    """One that learns for so many epochs, after which it is judged once."""
    return MultVAE(
        latent=4,
        epochs=epochs,
        evaluate_every=epochs,
        batch_size=200,
        learning_rate=0.02,
        dropout=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Shuffled(RandomGroups):
    """A control that nobody else knows: groups that are drawn at random."""

    is_control: ClassVar[bool] = True


MIXTURES = Mixtures(n=6, mixtures=3, temperature=2.0, shared_epochs=1)
CONTROL = Permuted(finder=MIXTURES)
ARMS: dict[str, Recommender] = {
    "mult-vae": a_network(2),
    "ensemble-vae": Ensemble(base=a_network(2), models=3),
    "dealt-vae": Loca(base=a_network(3), communities=CONTROL, combiner=FixedShare(0.0)),
    "mixture-vae": Loca(base=a_network(4), communities=MIXTURES, combiner=FixedShare(0.0)),
}
LONGER = ["ensemble-vae, 4 epochs", "dealt-vae, 4 epochs"]


def test_a_local_model_meets_its_base_and_both_controls() -> None:
    over_ease = [Loca(base=EASE(), communities=finder) for finder in (Shuffled(n=6), MIXTURES)]
    models = {
        "ease": EASE(),
        "next-vae": a_network(1),
        "ensemble-next-vae": Ensemble(base=a_network(1)),
        "dealt-ease": over_ease[0],
        "mixture-ease": over_ease[1],
        **ARMS,
        "loca-next-vae": Loca(base=a_network(1)),
    }
    assert pairs_to_compare(models, None, {}) == [
        ("mixture-ease", "ease"),
        ("mixture-ease", "dealt-ease"),
        ("dealt-vae", "ensemble-vae"),
        ("mixture-vae", "mult-vae"),
        ("mixture-vae", "ensemble-vae"),
        ("mixture-vae", "dealt-vae"),
        ("loca-next-vae", "next-vae"),
        ("loca-next-vae", "ensemble-next-vae"),
    ]


def test_longer_rows_are_compared_at_equal_epochs() -> None:
    assert pairs_to_compare(
        ARMS, None, {"mixture-vae": "longer local", "dealt-vae": "longer dealt"}
    ) == [
        ("dealt-vae", "ensemble-vae"),
        ("longer dealt", "ensemble-vae"),
        ("mixture-vae", "mult-vae"),
        ("mixture-vae", "ensemble-vae"),
        ("mixture-vae", "dealt-vae"),
        ("longer local", "ensemble-vae"),
        ("mixture-vae", "longer dealt"),
        ("longer local", "longer dealt"),
    ]


@pytest.fixture(scope="module")
def at_equal_epochs(planted_split: Split) -> Comparison:
    return compare(ARMS, planted_split, at=(5,), same_epochs=True)


def test_controls_that_chose_fewer_epochs_are_also_trained_as_long(
    at_equal_epochs: Comparison, planted_split: Split
) -> None:
    assert [one.name for one in at_equal_epochs.measured] == [*ARMS, *LONGER]
    known = planted_split.train_and_validation
    for name, longer in zip(("ensemble-vae", "dealt-vae"), LONGER, strict=True):
        arm: Any = ARMS[name]
        changes = {} if name.startswith("ensemble") else {"global_model": arm.base}
        by_hand = clone(arm, base=a_network(4), **changes).fit(known)
        expected = evaluate(by_hand, planted_split.test, at=(5,)).values["ndcg@5"]
        np.testing.assert_array_equal(
            at_equal_epochs.of(longer).evaluation.values["ndcg@5"], expected
        )
        assert not np.array_equal(at_equal_epochs.of(name).evaluation.values["ndcg@5"], expected)
        assert at_equal_epochs.of(longer).parameters["base.epochs"] == 4
        assert at_equal_epochs.difference("mixture-vae", longer).paired.user_count == 400
    longer_control = at_equal_epochs.of("dealt-vae, 4 epochs")
    assert longer_control.parameters["communities.finder.shared_epochs"] == 1
    found = {(one.first, one.second) for one in at_equal_epochs.differences}
    assert ("dealt-vae, 4 epochs", "ensemble-vae, 4 epochs") in found
    plain = compare(ARMS, planted_split, at=(5,))
    assert [one.name for one in plain.measured] == [*ARMS]


def test_the_report_says_what_the_controls_mean(
    at_equal_epochs: Comparison, comparison: Comparison
) -> None:
    for text in (str(at_equal_epochs), at_equal_epochs.to_markdown()):
        assert "What a local model gains over the dealt form is locality" in text
        assert (
            "ensemble-vae, 4 epochs: ensemble-vae as chosen, trained as long as the longest" in text
        )
        assert "budget: 1 setting per model" in text
    assert "locality" not in str(comparison)
    rows = {row[0]: row[-2] for row in at_equal_epochs.tables()[0].rows}
    assert (rows["ensemble-vae"], rows["ensemble-vae, 4 epochs"]) == ("1", "–")
    document = json.dumps(finite(at_equal_epochs.to_json()), allow_nan=False)
    assert "ensemble-vae, 4 epochs" in document
    assert tomllib.loads(settings_file(at_equal_epochs))["compare"]["models"] == [*ARMS]


def test_longer_rows_are_stored_found_again_and_computed_in_processes(
    at_equal_epochs: Comparison,
    planted_split: Split,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given: dict[str, Any] = {"at": (5,), "keep_in": tmp_path}
    arms = {name: ARMS[name] for name in ("ensemble-vae", "mixture-vae")}
    compare(arms, planted_split, **given)
    with caplog.at_level("INFO", "loca"):
        several = compare(arms, planted_split, same_epochs=True, processes=2, **given)
    assert "mixture-vae: finished before" in caplog.text
    with caplog.at_level("INFO", "loca"):
        again = compare(arms, planted_split, same_epochs=True, **given)
    assert "ensemble-vae, 4 epochs: finished before" in caplog.text
    expected = at_equal_epochs.of(LONGER[0]).evaluation.values["ndcg@5"]
    for found in (several, again):
        np.testing.assert_allclose(
            found.of(LONGER[0]).evaluation.values["ndcg@5"], expected, atol=1e-6
        )
        assert [one.repeats for one in found.measured] == ["", "", "ensemble-vae"]
    assert several.differences == again.differences
    # Another choice of the arm is another run.
    others = {**arms, "ensemble-vae": Ensemble(base=a_network(2), models=2)}
    with pytest.raises(
        ConfigError, match="holds results of ensemble-vae that are not those requested"
    ):
        compare(others, planted_split, same_epochs=True, **given)


def test_without_a_refit_longer_rows_learn_from_train_alone(planted_split: Split) -> None:
    models = {name: ARMS[name] for name in ("ensemble-vae", "mixture-vae")}
    found = compare(models, planted_split, at=(5,), refit=False, same_epochs=True)
    by_hand = Ensemble(base=a_network(4), models=3).fit(planted_split.train)
    expected = evaluate(by_hand, planted_split.test, at=(5,)).values["ndcg@5"]
    np.testing.assert_array_equal(found.of(LONGER[0]).evaluation.values["ndcg@5"], expected)


def test_equal_epochs_are_for_models_of_many_networks(
    planted_split: Split, caplog: pytest.LogCaptureFixture
) -> None:
    models = {
        "ease": EASE(),
        "ensemble-ease": Ensemble(base=EASE(), models=2),
        "mult-vae": a_network(1),
    }
    with caplog.at_level("INFO", "loca"):
        found = compare(models, planted_split, at=(5,), same_epochs=True)
    assert [one.name for one in found.measured] == [*models]
    assert "no model over a network chose fewer than another over the same" in caplog.text
    with pytest.raises(ConfigError, match="same_epochs: expected True or False, found 'yes'"):
        compare(models, planted_split, same_epochs="yes")  # type: ignore[arg-type]


def test_the_protocol_paper_has_kernels(planted_split: Split) -> None:
    finders = {
        "best": BestOf(n=3),
        "kernels": Kernels(n=3),
        "mixtures": Mixtures(n=3, mixtures=1),
        "best of given ones": BestOf(finders=(Mixtures(n=3, mixtures=1),)),
    }
    models = {name: Loca(base=EASE(), communities=finder) for name, finder in finders.items()}
    found = compare(models, planted_split, protocol="paper", at=(5,))
    kinds = [one.parameters["communities.kind"] for one in found.measured]
    assert kinds == ["Kernels", "Kernels", "Mixtures", "BestOf"]
    values = [one.evaluation.values["ndcg@5"] for one in found.measured]
    assert np.array_equal(values[0], values[1])
