"""What was run is told as it was run: the number of local models is that of the sizes, not that of the settings."""

from __future__ import annotations

from dataclasses import replace

from result_examples import bench, compared, level, results

from loca.reproduction.benchmark import Sizes
from loca.reproduction.runner import describe_run


def test_settings_have_as_many_models_as_were_asked_for() -> None:
    tables = {"loca-vae": {"anchors": 40, "alpha": 0.5}, "ensemble-vae": {"models": 139}, "ease": {"l2": 7.0}}
    on = replace(bench(scale=Sizes(local_models=3, seeds=1)), tables=tables)
    names = ("loca-vae", "ensemble-vae", "ease", "slim")
    told = describe_run("loca reproduce table2", [results({name: [compared(level(0.2))] for name in names}, on=on)])
    settings = {name: value for name, value in told.settings.items() if name.split(": ")[1] in names}
    assert settings == {
        "Hand, clean: slim": "defaults",
        "Hand, clean: ease": "l2 7.0",
        "Hand, clean: loca-vae": "anchors 3, alpha 0.5",
        "Hand, clean: ensemble-vae": "models 3",
    }
