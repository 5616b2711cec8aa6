"""What the paper did to each of its five data sets, and what its Table 1 says came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from loca.data.held_out import Split
from loca.data.interactions import Interactions
from loca.data.layouts import find_layout, known_members
from loca.data.readers import read_interactions
from loca.data.recency import Recency
from loca.data.sources import find_source
from loca.data.splitting import leave_last_out
from loca.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Printed:
    """A row of the paper's Table 1; sparsity and concentration in percent."""

    users: int
    items: int
    ratings: int
    sparsity: float
    concentration: float


@dataclass(frozen=True)
class Preset:
    """The paper's treatment: all ratings positive, repeats kept, users with at least 10 rows, the last 5 for test.

    Items whose users all went stay in the catalogue, because the paper counts them: AMusic's 11,797 are all items of
    the raw file, of which 11,586 are left with a rating.
    """

    name: str
    about: str
    layouts: tuple[str, ...]
    printed: Printed
    min_user_interactions: int = 10
    distinct: bool = False
    keep_unused_items: bool = True
    test: int = 5

    def split(self, interactions: Interactions, *, validation: int = 0) -> Split:
        """The paper's split: the last 5 of each user are test; it has no validation unless one is asked for."""
        return leave_last_out(interactions, test=self.test, validation=validation)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "ML10M",
                "MovieLens 10M, as published",
                ("movielens-10m", "loca-rating"),
                Printed(69_878, 10_677, 10_000_054, 98.66, 48.04),
            ),
            Preset(
                "ML20M",
                "MovieLens 20M, as published",
                ("movielens-20m", "loca-rating"),
                Printed(138_493, 26_744, 20_000_263, 99.46, 66.43),
            ),
            Preset(
                "AMusic",
                "Amazon Digital Music, 5-core of 2018",
                ("loca-rating", "amazon-reviews"),
                Printed(4_964, 11_797, 97_439, 99.83, 14.93),
            ),
            Preset(
                "AGames",
                "Amazon Video Games, 5-core of 2018",
                ("loca-rating", "amazon-reviews"),
                Printed(13_063, 17_408, 236_415, 99.90, 16.40),
            ),
            Preset(
                "Yelp",
                "Yelp 2015, as the authors of eALS published it",
                ("yelp-eals", "loca-rating"),
                Printed(25_677, 25_815, 731_671, 99.89, 22.78),
            ),
        )
    }
)


def find_preset(name: str) -> Preset:
    """The preset of that name, in any case; an unknown one is refused with the nearest."""
    by_lower = {known.lower(): preset for known, preset in PRESETS.items()}
    if name.lower() not in by_lower:
        close = did_you_mean(name, PRESETS) or "; known are " + ", ".join(PRESETS)
        raise ConfigError(f"unknown preset {name!r}{close}")
    return by_lower[name.lower()]


def read_preset(
    name: str, source: str | Path, *, layout: str | None = None, recency: Recency | None = None
) -> Interactions:
    """The interactions of one of the paper's data sets, treated as the paper did; the layout is told by the file."""
    preset = find_preset(name)
    return read_interactions(
        source,
        layout=layout or _choose_layout(preset, source),
        distinct=preset.distinct,
        min_user_interactions=preset.min_user_interactions,
        keep_unused_items=preset.keep_unused_items,
        recency=recency,
    )


def _choose_layout(preset: Preset, path: str | Path) -> str:
    """The first of the preset's layouts with the file's form and separator; else the first, whose reader will tell."""
    from loca.data.json_lines import looks_like_json
    from loca.data.text_shape import as_text, guess_separator

    head = find_source(path, known_members()).head(4096)
    is_json = looks_like_json(head)
    separator = guess_separator(as_text(head).split("\n")[:10])
    layouts = [find_layout(one) for one in preset.layouts]
    fitting = [one.name for one in layouts if one.is_json == is_json and (is_json or separator in one.separators)]
    return fitting[0] if fitting else preset.layouts[0]
