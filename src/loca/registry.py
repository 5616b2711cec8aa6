"""All models by name: the classes that a model folder may hold, and the ready models that commands know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from loca.communities.embeddings import GivenEmbeddings, TruncatedSVD
from loca.communities.geometry import Quantile
from loca.errors import ModelFileError
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_ease import EaseDifferences
from loca.local.local_models import SeparateModels
from loca.local.stacked.inference import StackedNetworks
from loca.models.cdae import CDAE
from loca.models.ease import EASE
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender, fitted
from loca.models.sglsvd import SGLSVD
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from loca.persistence import load_model

KINDS: Mapping[str, type] = {
    "Popularity": Popularity,
    "ItemKNN": ItemKNN,
    "EASE": EASE,
    "NextEASE": NextEASE,
    "SLIM": SLIM,
    "WMF": WMF,
    "LLORMA": LLORMA,
    "SGLSVD": SGLSVD,
    "CDAE": CDAE,
    "RecVAE": RecVAE,
    "MultVAE": MultVAE,
    "MultDAE": MultDAE,
    "Loca": Loca,
    "Ensemble": Ensemble,
    "Blend": Blend,
    "Auto": Auto,
    "SeparateModels": SeparateModels,
    "StackedNetworks": StackedNetworks,
    "EaseDifferences": EaseDifferences,
    "TruncatedSVD": TruncatedSVD,
    "GivenEmbeddings": GivenEmbeddings,
    "Quantile": Quantile,
}


def _next_vae() -> MultVAE:
    """A network of next items that learns some sets too, the settings with which `Auto` begins."""
    return MultVAE(dropout=0.2, noise=0.1, kl_weight=0.0, learning_rate=2e-3, target="next", set_share=0.3)


def _paper_vae() -> MultVAE:
    """The network of the paper's authors' program: little noise, no KL term, stopped by their patience of 50."""
    return MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0, epochs=300, patience=50)


def _loca_paper_vae() -> Loca:
    """LOCA_VAE with the authors' own settings: narrow communities, and no global share for who is covered."""
    return Loca(
        base=_paper_vae(),
        anchors=300,
        train_bandwidth=0.8,
        answer_bandwidth=0.4,
        alpha="paper",
        stopping="community",
    )


def _loca_paper_ease() -> Loca:
    """LOCA_EASE with the authors' own settings; the distances are those of MultVAE's embeddings."""
    return Loca(
        base=EASE(l2=100.0),
        anchors=300,
        train_bandwidth=0.6,
        answer_bandwidth=0.5,
        embedding=_paper_vae(),
        alpha="paper",
    )


def _llorma_vae() -> Loca:
    """One kernel to train and to answer with, around random anchors: what LLORMA does, over MultVAE."""
    width = Quantile(0.9, times=1.3)
    return Loca(base=MultVAE(), anchor_selection="random", train_bandwidth=width, answer_bandwidth=width)


MODELS: Mapping[str, Callable[[], Recommender]] = {
    "popularity": Popularity,
    "item-knn": ItemKNN,
    "wmf": WMF,
    "slim": SLIM,
    "ease": EASE,
    "cdae": CDAE,
    "mult-dae": MultDAE,
    "mult-vae": MultVAE,
    "rec-vae": RecVAE,
    "llorma": LLORMA,
    "sglsvd": SGLSVD,
    "llorma-vae": _llorma_vae,
    "loca-ease": lambda: Loca(base=EASE(), embedding=TruncatedSVD()),
    "loca-vae": lambda: Loca(base=MultVAE()),
    "loca-dae": lambda: Loca(base=MultDAE()),
    "loca-wmf": lambda: Loca(base=WMF()),
    "loca-slim": lambda: Loca(base=SLIM(), embedding=TruncatedSVD()),
    "loca-rec-vae": lambda: Loca(base=RecVAE()),
    "ensemble-ease": lambda: Ensemble(base=EASE()),
    "ensemble-vae": lambda: Ensemble(base=MultVAE()),
    "ensemble-dae": lambda: Ensemble(base=MultDAE()),
    "ensemble-wmf": lambda: Ensemble(base=WMF()),
    "ensemble-slim": lambda: Ensemble(base=SLIM()),
    "ensemble-rec-vae": lambda: Ensemble(base=RecVAE()),
    "next-ease": NextEASE,
    "next-vae": _next_vae,
    "loca-next-ease": lambda: Loca(base=NextEASE(), embedding=TruncatedSVD()),
    "loca-next-vae": lambda: Loca(base=_next_vae()),
    "ensemble-next-ease": lambda: Ensemble(base=NextEASE()),
    "ensemble-next-vae": lambda: Ensemble(base=_next_vae()),
    "loca-paper-vae": _loca_paper_vae,
    "loca-paper-ease": _loca_paper_ease,
    "ensemble-paper-vae": lambda: Ensemble(base=_paper_vae(), models=300),
    "ensemble-paper-ease": lambda: Ensemble(base=EASE(l2=100.0), models=300),
    "auto": Auto,
}


def load(folder: str | Path, *, verify: bool = False) -> Recommender:
    """The fitted model that was saved in a folder; anything that cannot be trusted is refused.

    Large arrays are mapped into memory and read as they are needed; `verify` reads all of them now, and notices every
    changed bit.
    """
    model = load_model(folder, KINDS, verify=verify)
    if not isinstance(model, Recommender):
        raise ModelFileError(f"{folder}: expected a recommender, found a part of one, {type(model).__name__}")
    known = model.train_data_
    if known is not None and model.count_items() != known.n_items:
        raise ModelFileError(f"{folder}: the model scores {model.count_items()} items, {known.n_items} are named")
    if (
        known is not None
        and isinstance(model, Loca)
        and (fitted(model.communities_, model).anchors >= known.n_users).any()
    ):
        raise ModelFileError(f"{folder}: an anchor is none of the {known.n_users} users")
    return model
