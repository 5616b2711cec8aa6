"""Small exhibits with known contents, for the tests of files, charts and the page."""

from __future__ import annotations

from loca.evaluation.significance import Verdict
from loca.reproduction.report_items import Chart, Curve, Finding, Gain, Headline, Provenance, ReportItem, ReportTable
from loca.text_table import TextTable

LINES = Chart(
    title="(a) AMusic",
    x_label="anchors",
    y_label="NDCG@100",
    curves=(
        Curve("LOCA VAE", (50, 100, 200), (0.083, 0.085, 0.086), (0.082, 0.084, 0.085), (0.084, 0.086, 0.087),
              ((0.0832, 0.0851, 0.0862), (0.0828, 0.0849, 0.0858))),
        Curve("MultVAE", (), (0.082,), is_level=True),
    ),
)  # fmt: skip
BARS = Chart(
    title="(b) Groups",
    x_label="users",
    y_label="NDCG@100",
    curves=(
        Curve("MultVAE", (0, 1), (0.08, 0.09), (0.07, 0.08), (0.09, 0.1)),
        Curve("LOCA VAE", (0, 1), (0.081, 0.095)),
    ),
    groups=("near", "far"),
)
FIGURE = ReportItem(
    key="figure-4",
    title="Figure 4: anchors",
    caption="More anchors.",
    charts=(LINES, BARS),
    records=({"anchors": 50, "ndcg@100": 0.083}, {"anchors": 100, "ndcg@100": 0.085, "seed": 1}),
    findings=(Finding("matches", "It rises."), Finding("differs", "It rises less.")),
    commands=("loca reproduce figure-4",),
)
TABLE = ReportItem(
    key="table-2",
    title="Table 2: accuracy",
    caption="All models.",
    panels=(
        ReportTable(
            "AMusic", TextTable(("metric", "EASE", "LOCA EASE"), (("NDCG@100", "0.0821", "0.0826"),)), "One seed."
        ),
    ),
    findings=(Finding("found", "An ensemble explains half."),),
)
PROVENANCE = Provenance(
    commands=("loca reproduce all",),
    settings={"seeds": "1, 2", "refit": True, "budget": None},
    versions={"loca": "0.1.0"},
    machine={"processor": "2 cores"},
    seconds={"figure-4": 12.34, "table-2": 8000.0},
)


def gain(over: str = "MultVAE", difference: float = 0.002, reach: float = 0.001, mean: float = 0.1) -> Gain:
    """A gain over a model of that mean; it is sure where the interval leaves 0 out."""
    low, high = difference - reach, difference + reach
    verdict: Verdict = "better" if low > 0 else "worse" if high < 0 else "undecided"
    return Gain(over, difference, low, high, difference / mean, verdict)


def headline(data: str = "AMusic", protocol: str = "clean", model: str = "LOCA VAE", *gains: Gain) -> Headline:
    """A headline; without gains it is better than its base, undecided and worse. Printed is its figure under paper."""
    given = gains or (gain("MultVAE"), gain("RecVAE", 0.0005), gain("40 MultVAE", -0.003))
    return Headline(data, protocol, model, 0.102, 0.1059 if protocol == "paper" else None, given)


def many_headlines() -> list[Headline]:
    """Three data sets, two models and both protocols: as much as the first screen must hold."""
    return [
        headline(data, protocol, model)
        for data in ("ML1M", "AMusic", "AGames")
        for model in ("LOCA VAE", "LOCA EASE")
        for protocol in ("clean", "paper")
    ]
