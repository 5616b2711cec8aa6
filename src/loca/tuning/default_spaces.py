"""The spaces that models of the catalogue are tuned in: `wide`, around every default, and `paper`, what it tried."""

from __future__ import annotations

from collections.abc import Mapping

from loca.errors import ConfigError, did_you_mean
from loca.tuning.search_space import Among, Domain, Quantiles, Reals, Space, SpaceName, Wholes, check_space

_RIDGE: Mapping[str, Domain] = {"l2": Reals(1.0, 1e4, log=True), "denoising": Reals(0.0, 0.9)}
_NETWORK: Mapping[str, Domain] = {
    "latent": Wholes(50, 600, log=True),
    "hidden": Among((None, 300, 600)),
    "dropout": Reals(0.0, 0.8),
    "learning_rate": Reals(1e-4, 1e-2, log=True),
    "weight_decay": Among((0.0, 1e-6, 1e-5, 1e-4)),
    "batch_size": Among((128, 256, 512, 1024)),
}
_VARIATIONAL: Mapping[str, Domain] = {
    "noise": Among((1.0, 0.1, 0.01)),
    "kl_weight": Reals(0.0, 1.0),
    # The default fits millions of users: where there are few, 20,000 steps never end.
    "anneal_steps": Among((0, 200, 2_000, 20_000)),
}
_NEXT: Mapping[str, Domain] = {
    "next_count": Wholes(1, 50, log=True),
    "prefix_decay": Reals(0.5, 0.98),
    "set_share": Reals(0.0, 0.8),
}
_FACTORS: Mapping[str, Domain] = {
    "confidence": Reals(1.0, 500.0, log=True),
    "user_l2": Reals(1.0, 1e3, log=True),
}
# Only the product of both regularisations shows in answers.
_ONE_RIDGE = {"item_l2": "user_l2"}
_KERNEL = Among(("epanechnikov", "paper", "uniform", "triangular"))
_COMMUNITIES: Mapping[str, Domain] = {
    "anchors": Wholes(10, 160, log=True),
    "anchor_selection": Among(("coverage", "random", "kmeans", "farthest")),
    # Up to above the largest distance: wide training neighbourhoods were the better ones on small data.
    "train_bandwidth": Quantiles(Reals(0.3, 1.0), Reals(0.8, 1.6)),
    # A factor here would only say otherwise what the level says.
    "answer_bandwidth": Quantiles(Reals(0.02, 0.95)),
    "kernel": _KERNEL,
}
# Chosen on validation alpha is never worse than a given one, but for what a given one does to the stopping of networks.
_NETWORK_COMMUNITIES: Mapping[str, Domain] = {**_COMMUNITIES, "alpha": Among(("validation", 0.1, 0.3, 0.5))}
_ENSEMBLE = Space({"models": Wholes(5, 160, log=True)})
_NEXT_RIDGE: Mapping[str, Domain] = {
    **_RIDGE,
    "next_count": Wholes(1, 50, log=True),
    "prefix_decay": Reals(0.3, 0.98),
    "ordinary": Reals(0.01, 10.0, log=True),
}

WIDE: Mapping[str, Space] = {
    "popularity": Space(),
    "item-knn": Space({"neighbours": Wholes(5, 1000, log=True), "shrinkage": Reals(0.0, 1000.0)}),
    "ease": Space(_RIDGE),
    "next-ease": Space(_NEXT_RIDGE),
    "slim": Space({"l1": Reals(0.1, 30.0, log=True), "l2": Reals(1.0, 1000.0, log=True)}),
    "wmf": Space(
        {
            "factors": Wholes(32, 1024, log=True),
            **_FACTORS,
            "frequency_scaling": Reals(0.0, 1.0),
            "iterations": Wholes(5, 20),
        },
        same=_ONE_RIDGE,
    ),
    "llorma": Space(
        {
            "anchors": Wholes(10, 100, log=True),
            "bandwidth": Reals(0.6, 5.0),
            "factors": Wholes(8, 128, log=True),
            **_FACTORS,
            "iterations": Wholes(3, 10),
        },
        same=_ONE_RIDGE,
    ),
    "sglsvd": Space(
        {
            "clusters": Wholes(2, 100, log=True),
            "global_rank": Wholes(10, 600, log=True),
            "local_rank": Wholes(1, 50, log=True),
        }
    ),
    "cdae": Space(
        {
            "latent": Wholes(50, 600, log=True),
            "dropout": Reals(0.0, 0.8),
            "loss": Among(("logistic", "square")),
            "learning_rate": Reals(1e-4, 1e-1, log=True),
            "weight_decay": Among((0.0, 1e-6, 1e-5, 3e-5, 1e-4)),
            "node_l2": Reals(1e-3, 10.0, log=True),
        }
    ),
    "mult-dae": Space(_NETWORK),
    "mult-vae": Space({**_NETWORK, **_VARIATIONAL}),
    "next-vae": Space({**_NETWORK, **_VARIATIONAL, **_NEXT}),
    "rec-vae": Space(
        {
            "latent": Wholes(100, 600, log=True),
            "hidden": Wholes(100, 800, log=True),
            "dropout": Reals(0.3, 0.9),
            "gamma": Reals(1e-3, 0.1, log=True),
            "learning_rate": Reals(1e-4, 2e-3, log=True),
            "encoder_epochs": Wholes(1, 3),
            # Where histories are few the decoder needs more passes than its authors give it.
            "decoder_epochs": Wholes(1, 10, log=True),
        }
    ),
    "llorma-vae": Space(
        {"anchors": Wholes(10, 160, log=True), "train_bandwidth": Quantiles(Reals(0.3, 1.0), Reals(0.8, 1.6))},
        same={"answer_bandwidth": "train_bandwidth"},
    ),
    "loca-ease": Space(_COMMUNITIES),
    "loca-slim": Space(_COMMUNITIES),
    "loca-wmf": Space(_COMMUNITIES),
    "loca-rec-vae": Space(_NETWORK_COMMUNITIES),
    "loca-next-ease": Space(_COMMUNITIES),
    "loca-dae": Space(_NETWORK_COMMUNITIES),
    "loca-vae": Space(_NETWORK_COMMUNITIES),
    "loca-next-vae": Space(_NETWORK_COMMUNITIES),
    "ensemble-ease": _ENSEMBLE,
    "ensemble-slim": _ENSEMBLE,
    "ensemble-wmf": _ENSEMBLE,
    "ensemble-rec-vae": _ENSEMBLE,
    "ensemble-next-ease": _ENSEMBLE,
    "ensemble-dae": _ENSEMBLE,
    "ensemble-vae": _ENSEMBLE,
    "ensemble-next-vae": _ENSEMBLE,
}

# The values that the paper tried, as its section "Implementation Details" gives them.
_LEARNING_RATES = Among((0.1, 0.01, 0.001))
_WEIGHT_DECAYS = Among((0.001, 0.01, 0.1))
_DROPOUTS = Among((0.0, 0.2, 0.5))
_SCHEDULE = {"latent": 200, "batch_size": 512, "patience": 50}
# MultVAE's layer is as wide as its authors', Liang et al., had it; the paper says no width.
_LAYERS = Among((None, 600))
_PAPER_FACTORS: Mapping[str, Domain] = {
    "user_l2": Among((1.0, 10.0, 100.0)),
    "item_l2": Among((1.0, 10.0, 100.0)),
    "confidence": Among((2.0, 5.0, 10.0)),
}
_KERNEL_BANDWIDTHS = Among((0.8, 1.0, 2.0, 4.0, 5.0))
_LOCA = Space({"train_bandwidth": Reals(0.8, 2.0), "answer_bandwidth": Reals(0.2, 0.8)})

PAPER: Mapping[str, Space] = {
    "popularity": Space(),
    "ease": Space({"l2": Among((1.0, 10.0, 100.0, 1000.0))}),
    "wmf": Space(_PAPER_FACTORS),
    "llorma": Space({**_PAPER_FACTORS, "bandwidth": _KERNEL_BANDWIDTHS}, fixed={"anchors": 100}),
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

# Models whose settings are the paper's authors', and are compared as they are.
GIVEN = ("loca-paper-vae", "loca-paper-ease", "ensemble-paper-vae", "ensemble-paper-ease")


def space_of(name: str, kind: SpaceName) -> Space:
    """The space of a model of the catalogue: `wide`, ours, or `paper`, the values that the paper tried."""
    check_space(kind)
    spaces = {"wide": WIDE, "paper": PAPER}
    found = spaces[kind].get(name)
    if found is None:
        known = spaces[kind]
        instead = "" if kind == "wide" or name not in WIDE else "; --space wide has one"
        nearest = instead or did_you_mean(name, known) or f"; there is one for {', '.join(known)}"
        raise ConfigError(f"no {kind} space to tune {name!r} in{nearest}")
    return found
