"""An explicit configuration of every class and kind, small enough for 400 users and 60 items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loca.communities.best_of import BestOf
from loca.communities.embeddings import GivenEmbeddings, TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.combiner import FixedShare, LocalOnly
from loca.local.engines.differences.engine import Differences
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.cdae import CDAE
from loca.models.ease import EASE
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender, clone
from loca.models.sglsvd import SGLSVD
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from loca.paper.permuted import Permuted
from loca.paper.stopping import StopEach
from loca.registry import RECORDS

N_USERS = 400
DAE = {"latent": 16, "learning_rate": 1e-2, "epochs": 12, "patience": 4, "batch_size": 100}
VAE = {**DAE, "kl_weight": 0.1, "anneal_steps": 100}
FACTORS = {"factors": 8, "confidence": 5.0, "user_l2": 5.0, "item_l2": 5.0}
KERNELS = Kernels(n=4, train_bandwidth=Quantile(0.6), answer_bandwidth=Quantile(0.2))
SVD_KERNELS = clone(KERNELS, embedding=TruncatedSVD(dimensions=8))
MIXTURES = Mixtures(n=6, mixtures=3)
GIVEN = np.random.default_rng(0).normal(size=(N_USERS, 5)).astype(np.float32)

# It has an embedding for each of the 400 users, and for no others.
FOR_THESE_USERS = "loca-ease by given embeddings"

MADE: dict[str, Callable[[], Recommender]] = {
    "popularity": Popularity,
    "ease": lambda: EASE(l2=20.0),
    "sparse ease": lambda: EASE(l2=20.0, keep=8),
    "mult-vae": lambda: MultVAE(**VAE),
    "mult-vae with a hidden layer": lambda: MultVAE(hidden=24, **VAE),
    "mult-dae": lambda: MultDAE(**DAE),
    "cdae": lambda: CDAE(latent=16, learning_rate=2e-2, epochs=20, patience=4, batch_size=100),
    "rec-vae": lambda: RecVAE(
        latent=16, hidden=32, learning_rate=5e-3, epochs=8, patience=4, batch_size=100
    ),
    "next-ease": lambda: NextEASE(l2=20.0),
    "next-vae": lambda: MultVAE(target="next", set_share=0.5, **VAE),
    "item-knn": lambda: ItemKNN(neighbours=20, shrinkage=5.0),
    "slim": lambda: SLIM(l1=1.0, l2=10.0),
    "wmf": lambda: WMF(**FACTORS, iterations=200),
    "wmf with scaled ridges": lambda: WMF(**FACTORS, frequency_scaling=0.5),
    "llorma": lambda: LLORMA(anchors=4, factors=6, confidence=5.0, user_l2=5.0, item_l2=5.0),
    "sglsvd": lambda: SGLSVD(clusters=3, global_rank=6, local_rank=3),
    "loca-ease": lambda: Loca(base=EASE(l2=20.0), communities=SVD_KERNELS),
    FOR_THESE_USERS: lambda: Loca(
        base=EASE(l2=20.0),
        communities=clone(KERNELS, embedding=GivenEmbeddings(embeddings=GIVEN)),
        combiner=FixedShare(0.5),
    ),
    "loca-ease in differences": lambda: Loca(
        base=EASE(l2=20.0), communities=SVD_KERNELS, engine=Differences()
    ),
    "loca-vae": lambda: Loca(base=MultVAE(**VAE), communities=KERNELS),
    "loca-vae one by one": lambda: Loca(base=MultVAE(**VAE), communities=KERNELS, engine=Loop()),
    "loca-vae in 16 bits": lambda: Loca(
        base=MultVAE(**VAE), communities=KERNELS, engine=Stacked(stored="float16")
    ),
    "loca-dae apart": lambda: Loca(
        base=MultDAE(**DAE), communities=KERNELS, combiner=FixedShare(0.5), engine=StopEach()
    ),
    "loca-next-ease": lambda: Loca(base=NextEASE(l2=20.0), communities=SVD_KERNELS),
    "loca-slim": lambda: Loca(base=SLIM(), communities=SVD_KERNELS, combiner=LocalOnly()),
    "loca-wmf": lambda: Loca(base=WMF(**FACTORS), communities=KERNELS),
    "loca-rec-vae": lambda: Loca(
        base=RecVAE(latent=8, hidden=16, learning_rate=1e-2, epochs=8, patience=3, batch_size=100),
        communities=clone(KERNELS, n=2),
    ),
    "loca over sparse ease": lambda: Loca(base=EASE(l2=20.0, keep=8), communities=SVD_KERNELS),
    "mixture-ease": lambda: Loca(base=EASE(l2=20.0), communities=MIXTURES),
    "mixture-vae": lambda: Loca(base=MultVAE(**VAE), communities=clone(MIXTURES, shared_epochs=3)),
    "permuted ease": lambda: Loca(base=EASE(l2=20.0), communities=Permuted(finder=MIXTURES)),
    "permuted vae": lambda: Loca(
        base=MultVAE(**VAE), communities=Permuted(finder=clone(MIXTURES, shared_epochs=3))
    ),
    "groups of ease": lambda: Loca(base=EASE(l2=20.0), communities=RandomGroups(n=4, divisions=2)),
    "groups of vae": lambda: Loca(base=MultVAE(**VAE), communities=RandomGroups(n=4)),
    "the best of ease": lambda: Loca(base=EASE(l2=20.0), communities=BestOf(n=4)),
    "ensemble-ease": lambda: Ensemble(base=EASE(l2=20.0), models=3),
    "ensemble-vae": lambda: Ensemble(base=MultVAE(**VAE), models=2),
    "ensemble-next-ease in differences": lambda: Ensemble(
        base=NextEASE(l2=20.0), models=3, engine=Differences()
    ),
    "blend": lambda: Blend(parts=[EASE(l2=20.0), MultVAE(**VAE), Popularity()]),
    "auto": lambda: Auto(chosen=Blend(parts=[EASE(l2=20.0), NextEASE(l2=20.0)])),
}
# A model of the registry that is not set up above is tested with its defaults: a new one needs no
# line here.
MADE |= {
    name: record.make
    for name, record in RECORDS.items()
    if record.base is None and name not in MADE
}
