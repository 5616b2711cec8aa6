"""LOCA: local collaborative autoencoders, from a ratings file to measured, explained top-N recommendations."""

from __future__ import annotations

import importlib
from typing import Any

# Where each public name lives; its module is loaded when the name is first used. Types are in __init__.pyi.
_HOMES = {
    "loca.communities.best_of": "BestOf",
    "loca.communities.embeddings": "GivenEmbeddings TruncatedSVD",
    "loca.communities.finder": "Communities CommunityFinder",
    "loca.communities.geometry": "Quantile",
    "loca.communities.kernel": "Kernels",
    "loca.communities.mixture": "Mixtures",
    "loca.communities.multinomial_mixture": "MultinomialMixture",
    "loca.communities.random_groups": "RandomGroups",
    "loca.data.interactions": "Interactions",
    "loca.data.item_metadata": "read_titles",
    "loca.data.readers": "read_interactions read_preset",
    "loca.data.recency": "Recency",
    "loca.data.schema": "Schema",
    "loca.data.splits": "HeldOut Split hold_last hold_out hold_out_users leave_last_out split_at_time split_from",
    "loca.data.statistics": "OrderCheck check_order describe",
    "loca.data.synthetic": "planted_communities",
    "loca.data.weighting": "Weighting",
    "loca.errors": "ConfigError DataError LocaError ModelFileError NotFittedError",
    "loca.evaluation.evaluate": "Evaluation evaluate",
    "loca.evaluation.explain": "Explanation",
    "loca.evaluation.metrics": "Metric",
    "loca.evaluation.recommend": "Recommendations recommend recommendation_table",
    "loca.evaluation.significance": "paired_difference",
    "loca.experiments.comparison": "Comparison compare",
    "loca.local.auto": "Auto",
    "loca.local.blend": "Blend",
    "loca.local.combiner": "Combiner FixedShare GlobalShare LocalOnly",
    "loca.local.engines.differences.engine": "Differences",
    "loca.local.engines.engine": "Engine ManyFits",
    "loca.local.engines.loop": "Loop",
    "loca.local.engines.stacked.engine": "Stacked",
    "loca.local.ensemble": "Ensemble",
    "loca.local.loca": "Loca",
    "loca.models.cdae": "CDAE",
    "loca.models.ease": "EASE",
    "loca.models.item_knn": "ItemKNN",
    "loca.models.llorma": "LLORMA",
    "loca.models.mult_vae": "MultDAE MultVAE",
    "loca.models.next_ease": "NextEASE",
    "loca.models.popularity": "Popularity",
    "loca.models.rec_vae": "RecVAE",
    "loca.models.recommender": "Recommender clone get_params",
    "loca.models.sglsvd": "SGLSVD",
    "loca.models.slim": "SLIM",
    "loca.models.wmf": "WMF",
    "loca.persistence.fit_context": "Callback FitContext StopFit checkpoint_in",
    "loca.persistence.recommendation_file": "recommend_to_file",
    "loca.progress": "set_progress show_progress",
    "loca.remarks": "LocaWarning",
    "loca.registry": "load",
    "loca.search_space": "Budget",
    "loca.serving.client": "Client",
    "loca.tuning.model_selection": "Selection choose_on_validation fit",
    "loca.tuning.recency_selection": "choose_recency",
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("loca")
        except PackageNotFoundError:
            return "0.2.0"  # run from a checkout that is not installed
    if name == "datasets":
        return importlib.import_module("loca.datasets")
    if name not in _MODULES:
        raise AttributeError(f"module 'loca' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "datasets"})
