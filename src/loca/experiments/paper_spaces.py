"""The values that the paper tried, as its section "Implementation Details" gives them."""

from __future__ import annotations

from collections.abc import Mapping

from loca.experiments.spaces import Among, Domain, Reals, Space

_LEARNING_RATES = Among((0.1, 0.01, 0.001))
_WEIGHT_DECAYS = Among((0.001, 0.01, 0.1))
_DROPOUTS = Among((0.0, 0.2, 0.5))
_SCHEDULE = {"latent": 200, "batch_size": 512, "patience": 50}
# MultVAE's layer is as wide as its authors', Liang et al., had it; the paper says no width.
_LAYERS = Among((None, 600))
_FACTORS: Mapping[str, Domain] = {
    "user_l2": Among((1.0, 10.0, 100.0)),
    "item_l2": Among((1.0, 10.0, 100.0)),
    "confidence": Among((2.0, 5.0, 10.0)),
}
_KERNEL_BANDWIDTHS = Among((0.8, 1.0, 2.0, 4.0, 5.0))
_LOCA = Space({"train_bandwidth": Reals(0.8, 2.0), "answer_bandwidth": Reals(0.2, 0.8)})

PAPER: Mapping[str, Space] = {
    "popularity": Space(),
    "ease": Space({"l2": Among((1.0, 10.0, 100.0, 1000.0))}),
    "wmf": Space(_FACTORS),
    "llorma": Space({**_FACTORS, "bandwidth": _KERNEL_BANDWIDTHS}, fixed={"anchors": 100}),
    "sglsvd": Space({"clusters": Among((2, 3, 5, 10, 20, 50, 100))}),
    "cdae": Space(
        {"learning_rate": _LEARNING_RATES, "weight_decay": _WEIGHT_DECAYS, "dropout": _DROPOUTS}, fixed=_SCHEDULE
    ),
    "mult-dae": Space(
        {"learning_rate": _LEARNING_RATES, "weight_decay": _WEIGHT_DECAYS, "dropout": _DROPOUTS}, fixed=_SCHEDULE
    ),
    "mult-vae": Space(
        {"learning_rate": _LEARNING_RATES, "dropout": _DROPOUTS, "hidden": _LAYERS},
        fixed={**_SCHEDULE, "weight_decay": 0.0},
    ),
    "rec-vae": Space(
        {"learning_rate": _LEARNING_RATES, "dropout": _DROPOUTS, "beta": Among((0.1, 0.01, 0.001))}, fixed=_SCHEDULE
    ),
    "llorma-vae": Space(
        {"train_bandwidth": _KERNEL_BANDWIDTHS}, fixed={"anchors": 100}, same={"answer_bandwidth": "train_bandwidth"}
    ),
    "loca-ease": _LOCA,
    "loca-dae": _LOCA,
    "loca-vae": _LOCA,
    "ensemble-ease": Space(),
    "ensemble-dae": Space(),
    "ensemble-vae": Space(),
}
