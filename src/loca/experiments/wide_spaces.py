"""The spaces that models are tuned in where nothing else is said: wide, and around every default."""

from __future__ import annotations

from collections.abc import Mapping

from loca.experiments.spaces import Among, Domain, Quantiles, Reals, Space, Wholes

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
