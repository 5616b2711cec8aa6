"""LOCA: local collaborative autoencoders, from a ratings file to measured, explained top-N recommendations."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loca.communities.embeddings import GivenEmbeddings as GivenEmbeddings
    from loca.communities.embeddings import TruncatedSVD as TruncatedSVD
    from loca.communities.geometry import Quantile as Quantile
    from loca.data.interactions import Interactions as Interactions
    from loca.data.readers import read_interactions as read_interactions
    from loca.data.readers import read_preset as read_preset
    from loca.data.recency import Recency as Recency
    from loca.data.splits import HeldOut as HeldOut
    from loca.data.splits import Split as Split
    from loca.data.splits import hold_last as hold_last
    from loca.data.splits import hold_out_users as hold_out_users
    from loca.data.splits import leave_last_out as leave_last_out
    from loca.data.splits import split_at_time as split_at_time
    from loca.data.statistics import OrderCheck as OrderCheck
    from loca.data.statistics import check_order as check_order
    from loca.data.statistics import describe as describe
    from loca.data.synthetic import planted_communities as planted_communities
    from loca.errors import ConfigError as ConfigError
    from loca.errors import DataError as DataError
    from loca.errors import LocaError as LocaError
    from loca.errors import ModelFileError as ModelFileError
    from loca.errors import NotFittedError as NotFittedError
    from loca.evaluation.evaluate import Evaluation as Evaluation
    from loca.evaluation.evaluate import evaluate as evaluate
    from loca.evaluation.recommend import recommend as recommend
    from loca.evaluation.recommend import recommendation_table as recommendation_table
    from loca.evaluation.significance import paired_difference as paired_difference
    from loca.experiments.comparison import Comparison as Comparison
    from loca.experiments.comparison import compare as compare
    from loca.local.auto import Auto as Auto
    from loca.local.blend import Blend as Blend
    from loca.local.ensemble import Ensemble as Ensemble
    from loca.local.loca import Loca as Loca
    from loca.models.cdae import CDAE as CDAE
    from loca.models.ease import EASE as EASE
    from loca.models.item_knn import ItemKNN as ItemKNN
    from loca.models.llorma import LLORMA as LLORMA
    from loca.models.mult_vae import MultDAE as MultDAE
    from loca.models.mult_vae import MultVAE as MultVAE
    from loca.models.next_ease import NextEASE as NextEASE
    from loca.models.popularity import Popularity as Popularity
    from loca.models.rec_vae import RecVAE as RecVAE
    from loca.models.recommender import Recommender as Recommender
    from loca.models.recommender import clone as clone
    from loca.models.recommender import get_params as get_params
    from loca.models.sglsvd import SGLSVD as SGLSVD
    from loca.models.slim import SLIM as SLIM
    from loca.models.wmf import WMF as WMF
    from loca.persistence.fit_context import FitContext as FitContext
    from loca.persistence.fit_context import checkpoint_in as checkpoint_in
    from loca.persistence.fit_context import keep_work_in as keep_work_in
    from loca.progress import show_progress as show_progress
    from loca.registry import load as load
    from loca.search_space import Budget as Budget
    from loca.tuning.model_selection import Selection as Selection
    from loca.tuning.model_selection import choose_on_validation as choose_on_validation
    from loca.tuning.model_selection import fit as fit
    from loca.tuning.recency_selection import choose_recency as choose_recency

    __version__: str

# Where each public name lives; its module is loaded when the name is first asked for.
_HOMES = {
    "load": "loca.registry",
    "GivenEmbeddings": "loca.communities.embeddings",
    "TruncatedSVD": "loca.communities.embeddings",
    "Quantile": "loca.communities.geometry",
    "HeldOut": "loca.data.splits",
    "Split": "loca.data.splits",
    "Interactions": "loca.data.interactions",
    "OrderCheck": "loca.data.statistics",
    "check_order": "loca.data.statistics",
    "read_preset": "loca.data.readers",
    "read_interactions": "loca.data.readers",
    "Recency": "loca.data.recency",
    "hold_last": "loca.data.splits",
    "hold_out_users": "loca.data.splits",
    "leave_last_out": "loca.data.splits",
    "split_at_time": "loca.data.splits",
    "describe": "loca.data.statistics",
    "planted_communities": "loca.data.synthetic",
    "ConfigError": "loca.errors",
    "DataError": "loca.errors",
    "LocaError": "loca.errors",
    "ModelFileError": "loca.errors",
    "NotFittedError": "loca.errors",
    "fit": "loca.tuning.model_selection",
    "Selection": "loca.tuning.model_selection",
    "Budget": "loca.search_space",
    "choose_on_validation": "loca.tuning.model_selection",
    "Comparison": "loca.experiments.comparison",
    "compare": "loca.experiments.comparison",
    "choose_recency": "loca.tuning.recency_selection",
    "FitContext": "loca.persistence.fit_context",
    "checkpoint_in": "loca.persistence.fit_context",
    "keep_work_in": "loca.persistence.fit_context",
    "Auto": "loca.local.auto",
    "Blend": "loca.local.blend",
    "Ensemble": "loca.local.ensemble",
    "Loca": "loca.local.loca",
    "EASE": "loca.models.ease",
    "WMF": "loca.models.wmf",
    "SLIM": "loca.models.slim",
    "SGLSVD": "loca.models.sglsvd",
    "RecVAE": "loca.models.rec_vae",
    "LLORMA": "loca.models.llorma",
    "ItemKNN": "loca.models.item_knn",
    "CDAE": "loca.models.cdae",
    "MultDAE": "loca.models.mult_vae",
    "MultVAE": "loca.models.mult_vae",
    "NextEASE": "loca.models.next_ease",
    "Popularity": "loca.models.popularity",
    "Recommender": "loca.models.recommender",
    "clone": "loca.models.recommender",
    "get_params": "loca.models.recommender",
    "show_progress": "loca.progress",
    "Evaluation": "loca.evaluation.evaluate",
    "evaluate": "loca.evaluation.evaluate",
    "recommend": "loca.evaluation.recommend",
    "recommendation_table": "loca.evaluation.recommend",
    "paired_difference": "loca.evaluation.significance",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("loca")
        except PackageNotFoundError:
            return "0.1.0"  # run from a checkout that is not installed
    if name not in _HOMES:
        raise AttributeError(f"module 'loca' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
