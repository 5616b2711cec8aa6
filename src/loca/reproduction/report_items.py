"""An exhibit: one table or figure of the paper as it came out here, with what matches the paper and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loca.evaluation.significance import Verdict
from loca.text_table import TextTable

Value = str | int | float | bool | None
# What the words say of the paper: the same here, not the same here, or a thing that the paper does not say.
Kind = Literal["matches", "differs", "found"]


@dataclass(frozen=True)
class Finding:
    """One sentence on what came out, and how it stands to the paper."""

    kind: Kind
    text: str

    @classmethod
    def on(cls, claim_holds: bool, text: str) -> Finding:
        """A finding on something that the paper claims."""
        return cls("matches" if claim_holds else "differs", text)


@dataclass(frozen=True)
class ReportTable:
    """A table of an exhibit under its own heading; `note` says what must be known to read it."""

    heading: str
    grid: TextTable
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """One line of a chart: its points, an interval around each (95 % over users) and the values of single seeds.

    `low`, `high` and `seeds` may be empty. `is_level` draws a dashed level over the whole width instead of points.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    seeds: tuple[tuple[float, ...], ...] = ()
    is_level: bool = False


@dataclass(frozen=True)
class Chart:
    """One pair of axes: curves over a number, or bars over named groups (`groups`), under a title such as (b) AMusic.

    With `groups` the x of a curve are places in it, and each curve is one colour of bars side by side.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    groups: tuple[str, ...] = ()
    is_log_x: bool = False
    is_log_y: bool = False


@dataclass(frozen=True)
class ReportItem:
    """A table or figure: what a reader sees of it, and the records that every figure in it comes from.

    `records` are the lines of its CSV: every seed, every setting. `charts` are drawn side by side into one picture.
    `missing` says what was not computed, a line for each data set and protocol.
    """

    key: str
    title: str
    caption: str
    panels: tuple[ReportTable, ...] = ()
    charts: tuple[Chart, ...] = ()
    records: tuple[Mapping[str, Value], ...] = ()
    findings: tuple[Finding, ...] = ()
    commands: tuple[str, ...] = field(default=())
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gain:
    """What a local model gains over another in NDCG@100: the paired difference, its 95 % interval, how sure it is."""

    over: str
    difference: float
    low: float
    high: float
    relative: float
    verdict: Verdict


@dataclass(frozen=True)
class Headline:
    """A line of the first screen: what one LOCA gains on one data set under one protocol.

    `gains` are over its base, over the best single model and over the equal-size ensemble, in this order; one that was
    not measured is left out. `printed` is the paper's figure, under the protocol `paper` alone: others have other data.
    `spread` is the standard deviation over seeds.
    """

    data: str
    protocol: str
    model: str
    ndcg: float
    printed: float | None
    gains: tuple[Gain, ...]
    spread: float | None = None


@dataclass(frozen=True)
class Provenance:
    """What was run: the commands, the data sets, versions, the machine and the seconds that each exhibit took."""

    commands: tuple[str, ...]
    settings: Mapping[str, Value]
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    seconds: Mapping[str, float]
