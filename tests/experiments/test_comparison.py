"""A comparison sets the right models against each other and reads the same as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from loca.data.recency import Recency
from loca.data.splits import Split
from loca.errors import ConfigError, DataError
from loca.evaluation.evaluate import evaluate
from loca.evaluation.significance import holm, paired_difference
from loca.experiments.comparison import Comparison, compare
from loca.experiments.report import check_file, settings_file, write_tables
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.popularity import Popularity
from loca.text_table import TextTable, finite
from scripted_models import RIGHT_ON_TEST, RIGHT_ON_VALIDATION, SECOND, Scripted, scripted_split


@pytest.fixture(scope="module")
def comparison(planted_split: Split) -> Comparison:
    models = {
        "popularity": Popularity(),
        "ease": [EASE(l2=1.0), EASE(l2=100.0)],
        "ensemble-ease": Ensemble(base=EASE(l2=100.0), models=3),
        "loca-ease": Loca(base=EASE(l2=100.0), anchors=3),
    }
    return compare(models, planted_split, at=(5, 20), keep=["ease"], seed=1)


def test_each_loca_meets_its_base_and_its_ensemble_and_all_meet_the_control(comparison: Comparison) -> None:
    assert [(one.first, one.second) for one in comparison.differences] == [
        ("loca-ease", "ease"),
        ("loca-ease", "ensemble-ease"),
        ("popularity", "ease"),
        ("ensemble-ease", "ease"),
    ]
    assert comparison.control == "ease"
    assert comparison.metric == "ndcg@20"


def test_figures_are_those_of_the_models_themselves(comparison: Comparison, planted_split: Split) -> None:
    chosen = comparison.of("ease").parameters["l2"]
    ease = evaluate(EASE(l2=chosen).fit(planted_split.train_and_validation), planted_split.test, at=(5, 20))
    popular = evaluate(Popularity().fit(planted_split.train_and_validation), planted_split.test, at=(5, 20))
    assert np.array_equal(comparison.of("ease").evaluation.values["ndcg@20"], ease.values["ndcg@20"])
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


def test_ndcg_at_100_is_compared_where_it_is_measured_else_the_longest(planted_split: Split) -> None:
    models = {"popularity": Popularity(), "ease": EASE()}
    assert compare(models, planted_split, at=(5, 100, 200)).metric == "ndcg@100"
    assert compare(models, planted_split, at=(5, 200)).metric == "ndcg@200"


def test_a_single_test_user_gets_the_table_and_the_reason_why_there_is_no_more(planted_split: Split) -> None:
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
    models = {"test's": Scripted(script=(RIGHT_ON_TEST,)), "validation's": Scripted(script=(RIGHT_ON_VALIDATION,))}
    found = compare(models, scripted_split(), at=(5,), refit=refit)
    reached = {one.name: (one.tried[one.chosen].ndcg, one.evaluation.means()["ndcg@5"]) for one in found.measured}
    assert reached == {"test's": pytest.approx((SECOND, 1.0)), "validation's": pytest.approx((1.0, SECOND))}
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
    with pytest.raises(ConfigError, match="'ease' was not compared with 'popularity'; compared were loca-ease − ease,"):
        comparison.difference("ease", "popularity")


def test_models_in_a_list_are_named_by_what_they_are(planted_split: Split) -> None:
    models = [EASE(), EASE(l2=5.0), Ensemble(base=EASE(), models=2), Loca(base=EASE(), anchors=2)]
    found = compare(models, planted_split, at=(5,))
    assert [one.name for one in found.measured] == ["EASE", "EASE 2", "Ensemble(EASE)", "Loca(EASE)"]
    assert ("Loca(EASE)", "EASE 2") in [(one.first, one.second) for one in found.differences]


def test_local_models_alone_have_no_control(planted_split: Split) -> None:
    found = compare([Ensemble(base=EASE(), models=2)], planted_split, at=(5,))
    assert found.control is None
    assert found.differences == ()
    assert "difference" not in str(found)
    assert "difference" not in found.to_markdown()


def test_the_text_shows_every_model_and_what_was_chosen(comparison: Comparison) -> None:
    text = str(comparison)
    assert text.startswith("protocol clean: chosen on validation, refitted on train + validation, tested once")
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
            row = next(one for one in rows if (one["model"], one["metric"]) == (model["name"], metric))
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
    found = compare({"ease": [EASE(l2=1.0), EASE()], "popularity": Popularity()}, planted_split, protocol="paper")
    assert "SELECTED ON TEST: NOT A RESULT" in str(found).splitlines()[0]
    assert "SELECTED ON TEST: NOT A RESULT" in found.to_markdown()
    assert found.to_json()["is_result"] is False
    assert found.to_json()["warning"] == "SELECTED ON TEST: NOT A RESULT"
    assert {row["is_result"] for row in csv.DictReader(io.StringIO(found.to_csv()))} == {"False"}


def test_a_worse_model_is_called_worse_and_a_twin_equal(planted_split: Split) -> None:
    found = compare({"ease": EASE(), "twin": EASE(), "popularity": Popularity()}, planted_split, control="ease")
    verdicts = {row[0]: row[-1] for row in found.tables()[1].rows}
    assert verdicts == {"twin − ease": "equal", "popularity − ease": "worse"}
    better = compare({"ease": EASE(), "popularity": Popularity()}, planted_split, control="popularity")
    assert better.tables()[1].rows[0][-1] == "better"


def test_tables_are_written_into_a_folder(comparison: Comparison, tmp_path: Path) -> None:
    write_tables(comparison, tmp_path / "new" / "results")
    names = sorted(one.name for one in (tmp_path / "new" / "results").iterdir())
    assert names == ["comparison.csv", "comparison.json", "comparison.md", "comparison.txt", "differences.csv"]
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


def test_the_settings_of_all_models_are_written_as_a_settings_file_takes_them(comparison: Comparison) -> None:
    written = tomllib.loads(settings_file(comparison))
    assert written["compare"]["models"] == ["popularity", "ease", "ensemble-ease", "loca-ease"]
    assert written["ease"] == {"l2": comparison.of("ease").parameters["l2"]}
    assert written["loca-ease"]["anchors"] == written["ensemble-ease"]["models"] == 3
    assert "popularity" not in written


def test_models_that_a_settings_file_cannot_name_are_left_out_of_it(planted_split: Split) -> None:
    found = compare([EASE(), EASE(l2=2.0)], planted_split, at=(5,))
    assert tomllib.loads(settings_file(found)) == {}


def test_a_text_table_is_aligned() -> None:
    table = TextTable(("name", "n"), (("a", "1"), ("bc", "10")))
    assert table.plain() == "name   n\na      1\nbc    10"
    assert table.markdown() == "| name | n |\n| --- | ---: |\n| a | 1 |\n| bc | 10 |"


def test_json_values_are_finite() -> None:
    assert finite({"a": [1.0, float("inf")], "b": float("nan"), "c": "x"}) == {"a": [1.0, None], "b": None, "c": "x"}


def test_every_model_chooses_its_own_recency_and_the_report_says_which(drifting_split: Split) -> None:
    models = {"ease": EASE(), "popularity": Popularity()}
    found = compare(models, drifting_split, recency="auto", keep=("ease",), control="popularity")
    ease, popular = found.of("ease"), found.of("popularity")
    choice = ease.tried[0].recency
    assert choice is not None
    assert ease.recency is not None
    assert (ease.recency, popular.recency) == (choice.recency, None)
    assert found.models["ease"].train_data_.recency == ease.recency  # type: ignore[union-attr]
    expected = evaluate(
        EASE().fit(drifting_split.train_and_validation), drifting_split.test.with_recency(ease.recency)
    ).values["ndcg@100"]
    assert found.difference("ease", "popularity").paired.mean == pytest.approx(
        (expected - popular.evaluation.values["ndcg@100"]).mean()
    )
    line = f"ease chose recency: {ease.recency}; {choice.ndcg:.4f} on validation, {choice.ndcg_without:.4f} without"
    for text in (str(found), found.to_markdown()):
        assert line in text
        assert "popularity chose recency: none; " in text
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))["models"]
    assert [one["recency"] for one in written] == [asdict(ease.recency), None]
    assert written[0]["tried"][0]["recency_choice"]["ndcg@100"] == choice.ndcg
    assert written[0]["tried"][0]["recency_choice"]["ndcg@100_without"] == choice.ndcg_without


def test_a_given_recency_is_said_too_and_nothing_is_chosen(planted_split: Split) -> None:
    found = compare({"ease": EASE()}, planted_split.with_recency(Recency(2)))
    assert found.of("ease").recency == Recency(2)
    assert found.to_json()["models"][0]["recency"] == asdict(Recency(2))
    assert "recency" not in str(found)
    assert "recency_choice" not in found.to_json()["models"][0]["tried"][0]


def test_a_recency_cannot_be_chosen_on_test(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="recency: auto is chosen on validation, which the protocol paper has not"):
        compare({"ease": EASE()}, planted_split, protocol="paper", recency="auto")
