"""The rows of the table: the global model, the ensemble, Loca, and each way tried to make locality earn more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.communities.geometry import Quantile, resolve_bandwidth
from loca.models.recommender import clone
from loca.random_streams import derive_seed, stream
from locality_corrections import FineTuned, LowRankCorrections, popularity_biases, residual_biases, shares_of
from locality_gains import cross_fitted_factors, times_factors
from locality_memberships import (
    WIDE,
    Membership,
    RandomSigns,
    around_anchors,
    at_two_scales,
    embed_parts,
    in_soft_cells,
    k_means_closeness,
    membership_of,
    of_true_shares,
    only_model,
    own_fit,
    strengths_of,
)
from locality_questions import Answer, Outcome, choose, z_scores
from locality_trial import Trial

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
POWERS = (0.5, 1.0, 2.0, 4.0)
BIAS_SCALES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
WIDTHS = (Quantile(0.25), Quantile(0.5), Quantile(0.75), WIDE)
RANK = 32
OUTSIDE = (0.05, 0.3)
TUNING_EPOCHS = 20
Candidate = tuple[dict[str, Any], Answer]


def of_global(trial: Trial) -> Outcome:
    """The single global model."""
    candidates: list[Candidate] = [({}, lambda name: trial.global_scores[name])]
    epochs = getattr(trial.global_model, "best_epoch_", None)
    return choose(trial.setting.parts, candidates, trial.global_shown, epochs=epochs)


def of_ensemble(trial: Trial) -> Outcome:
    """An ensemble of as many models as Loca has communities, each trained on all users."""
    family = trial.ensemble
    candidates: list[Candidate] = [({}, lambda name: family.scores[name])]
    return choose(trial.setting.parts, candidates, family.shown, epochs=family.epochs)


def of_ensemble_at_equal_cost(trial: Trial) -> Outcome:
    """An ensemble of so many models that they were shown as many users as Loca's and its global one."""
    family, count = trial.ensemble, trial.setting.anchors
    cost = trial.loca.shown + trial.global_shown
    wanted = min(max(1, round(cost / (family.shown / count))), 2 * count)
    scores = dict(family.scores)
    if wanted < count:
        asked = (np.arange(count) < wanted).astype(np.float32)
        for name, questions in trial.setting.parts.items():
            weights = csr_array(np.tile(asked, (len(questions), 1)))
            scores[name] = trial.blended(family.models, {name: weights}, name)
    elif wanted > count:
        more = trial.train_ensemble(range(count, wanted), stop=False)
        for name in scores:
            scores[name] = (count * family.scores[name] + (wanted - count) * more.scores[name]) / wanted
    candidates: list[Candidate] = [({"models": wanted}, lambda name: scores[name])]
    return choose(trial.setting.parts, candidates, family.shown / count * wanted)


def of_loca(trial: Trial) -> Outcome:
    """Loca as it is: the global model's share α chosen on validation."""
    return _shared(trial, trial.loca.scores, trial.loca.shown, epochs=trial.loca.epochs)


def by_strength(trial: Trial) -> Outcome:
    """α of each user: the local share is (1 − α) · s^ρ, s the largest answer weight, or their sum up to the median."""
    strengths, scores = strengths_of(trial.loca.membership.answering), trial.loca.scores

    def answer(kind: str, alpha: float, power: float) -> Answer:
        def scored(name: str) -> Tensor:
            ours = torch.from_numpy(((1 - alpha) * strengths[kind][name] ** power).astype(np.float32))
            first = trial.global_scores[name]
            return torch.lerp(first, scores[name], ours.to(first.device)[:, None])

        return scored

    candidates: list[Candidate] = [
        ({"strength": kind, "alpha": alpha, "power": power}, answer(kind, alpha, power))
        for kind in strengths
        for alpha in ALPHAS[:-1]
        for power in POWERS
    ]
    return choose(trial.setting.parts, candidates, trial.loca.shown + trial.global_shown)


def by_answer_width(trial: Trial) -> Outcome:
    """The same local models, answering for narrower or wider neighbourhoods: up to everybody, as an ensemble does."""
    one, family = trial.setting, trial.loca
    candidates: list[Candidate] = []
    for width in WIDTHS:
        units = resolve_bandwidth(width, trial.embedded["train"], one.seed)
        answering = membership_of(replace(trial.found[0], answer_bandwidth=units), trial.embedded).answering
        scores = {name: trial.blended(family.models, answering, name) for name in one.parts}
        candidates += _candidates(trial, scores, {"answer bandwidth": str(width)})
    return choose(one.parts, candidates, family.shown + trial.global_shown)


def by_k_means(trial: Trial) -> Outcome:
    """Communities around the users nearest to the centres of k-means."""
    one = trial.setting
    return _of_membership(trial, around_anchors(trial.embedded, one.anchors, "kmeans", one.seed, one.device)[1])


def by_cells(trial: Trial) -> Outcome:
    """The cells of k-means themselves, softened: shares by a softmax of the cosines to the centres.

    What a user outside of a cell still counts when its model is trained is chosen on validation.
    """
    closeness = k_means_closeness(trial.embedded, trial.setting.anchors, trial.setting.seed)
    candidates: list[Candidate] = []
    shown = trial.global_shown
    for outside in OUTSIDE:
        family = trial.variant(in_soft_cells(closeness, outside))
        candidates += _candidates(trial, family.scores, {"outside": outside})
        shown += family.shown
    return choose(trial.setting.parts, candidates, shown)


def by_overlap(trial: Trial) -> Outcome:
    """Communities by what histories have in common, without a learned embedding."""
    one = trial.setting
    embedded = embed_parts(RandomSigns(seed=one.seed).fit(one.matrix), one.histories)
    return _of_membership(trial, around_anchors(embedded, one.anchors, "coverage", one.seed, one.device)[1])


def by_own_fit(trial: Trial) -> Outcome:
    """Communities found again by the local models themselves: shares by how well each explains a user's history."""
    one = trial.setting
    block = 4096 if one.device.type == "cuda" else 512
    fits = own_fit(trial.loca.models, one.histories, one.anchors, not one.linear, block)
    return _of_membership(trial, in_soft_cells(fits), trial.loca.shown)


def at_scales(trial: Trial) -> Outcome:
    """Train weights from two scales: the mean of wide ones and of narrow ones."""
    return _of_membership(trial, at_two_scales(trial.found[0], trial.embedded, trial.setting.seed))


def by_bias(trial: Trial) -> Outcome:
    """The global scores and each community's bias: its popularity, or what the global model does not expect of it."""
    one, membership = trial.setting, trial.found[1]
    wide = np.column_stack([membership.train_weights(number) for number in range(membership.count)])
    narrow = membership.answering["train"].toarray()
    forms = {
        "popularity, train weights": popularity_biases(one.matrix, wide),
        "popularity, answer weights": popularity_biases(one.matrix, narrow),
        "unexpected, answer weights": residual_biases(
            trial.global_model, one.matrix, one.histories.train, narrow, one.device
        ),
    }
    unit = float(trial.global_scores["validation"].std(dim=1).mean())
    biases = {
        form: torch.from_numpy(table / max(float(table.std()), 1e-12)).to(one.device) for form, table in forms.items()
    }
    shares = {name: shares_of(membership.answering[name], one.device) for name in one.parts}

    def answer(form: str, scale: float) -> Answer:
        return lambda name: torch.addmm(trial.global_scores[name], shares[name], biases[form], alpha=scale * unit)

    candidates: list[Candidate] = [
        ({"bias": form, "scale": scale}, answer(form, scale)) for form in forms for scale in BIAS_SCALES
    ]
    return choose(one.parts, candidates, trial.global_shown)


def by_low_rank(trial: Trial) -> Outcome | None:
    """Local EASEs whose difference to the global one is cut to rank 32; nothing for networks."""
    one, membership = trial.setting, trial.found[1]
    if not one.linear:
        return None
    local = LowRankCorrections.of(
        trial.global_model, one.matrix, membership.train_weights, one.anchors, RANK, one.device
    )
    scores = {name: trial.blended(local, membership.answering, name) for name in one.parts}
    return _shared(trial, scores, trial.loca.shown)


def by_fine_tuning(trial: Trial) -> Outcome | None:
    """Local networks that begin with the global one's weights and learn a tenth as fast; nothing for EASE."""
    one = trial.setting
    if one.linear:
        return None
    slower = clone(one.base, epochs=TUNING_EPOCHS, learning_rate=one.base.learning_rate / 10)
    models = [
        FineTuned(clone(slower, seed=derive_seed(one.seed, "fine-tuned", number)), trial.global_model.network_)
        for number in range(one.anchors)
    ]
    family = trial.train(trial.found[1], stop=True, models=models)
    return _shared(trial, family.scores, family.shown, epochs=family.epochs)


def by_gains(trial: Trial) -> Outcome:
    """Each community's answer weight times its own validated gain, shrunk over all; cross-fitted on validation."""
    one, family = trial.setting, trial.loca
    alpha = float(of_loca(trial).chosen["alpha"])
    weights = family.membership.answering["validation"].toarray()
    differences = _local_differences(trial, weights, 0.5 if alpha == 1 else alpha)
    folds = stream(one.seed, "folds for gains").integers(0, 2, len(weights))
    by_user, overall = cross_fitted_factors(differences, weights, folds)
    answering = family.membership.answering
    candidates: list[Candidate] = []
    for kind in overall:
        changed = {
            "validation": times_factors(answering["validation"], by_user[kind]),
            "test": times_factors(answering["test"], overall[kind]),
        }
        scores = {name: trial.blended(family.models, changed, name) for name in one.parts}
        on = int((overall[kind] > 0).sum())
        candidates += _candidates(trial, scores, {"factor": kind, "communities left": on})
    return choose(one.parts, candidates, family.shown + trial.global_shown)


def _local_differences(trial: Trial, weights: Any, alpha: float) -> Any:
    """What each local model alone, with the global one's share α, gains for those it answers for; users × models."""
    questions, first = trial.setting.parts["validation"], trial.global_scores["validation"]
    before = questions.ndcgs(first)
    differences = np.zeros(weights.shape)
    for number in range(weights.shape[1]):
        members = np.flatnonzero(weights[:, number])
        if len(members):
            asked = csr_array(questions.histories[members])
            local = trial.loca.models.blend(asked, only_model(number, weights.shape[1], len(members)))
            theirs = first[torch.from_numpy(members).to(first.device)]
            scores = torch.lerp(local.to(first.device), theirs, alpha)
            differences[members, number] = questions.ndcgs(scores, members) - before[members]
    return differences


def blended_with_global(trial: Trial) -> Outcome:
    """z-scores of the global model and of Loca, the weight chosen on validation."""
    return _z_blend(trial, trial.global_scores, trial.loca.shown + trial.global_shown)


def blended_with_ensemble(trial: Trial) -> Outcome:
    """z-scores of the ensemble and of Loca, the weight chosen on validation: what locality adds to the control."""
    return _z_blend(trial, trial.ensemble.scores, trial.loca.shown + trial.global_shown + trial.ensemble.shown)


def by_true_communities(trial: Trial) -> Outcome | None:
    """The bound on planted data: one model per true community, answering by the true shares."""
    shares = trial.setting.true_shares
    return None if shares is None else _of_membership(trial, of_true_shares(shares))


def _z_blend(trial: Trial, others: dict[str, Tensor], shown: float) -> Outcome:
    alpha = float(of_loca(trial).chosen["alpha"])
    first = {name: z_scores(scores) for name, scores in others.items()}
    second = {
        name: z_scores(torch.lerp(scores, trial.global_scores[name], alpha))
        for name, scores in trial.loca.scores.items()
    }

    def answer(weight: float) -> Answer:
        return lambda name: torch.lerp(first[name], second[name], weight)

    candidates: list[Candidate] = [({"weight of Loca": weight}, answer(weight)) for weight in ALPHAS]
    return choose(trial.setting.parts, candidates, shown)


def _of_membership(trial: Trial, membership: Membership, shown_before: float = 0.0) -> Outcome:
    family = trial.variant(membership)
    return _shared(trial, family.scores, family.shown + shown_before, epochs=family.epochs)


def _shared(trial: Trial, scores: dict[str, Tensor], shown: float, *, epochs: int | None = None) -> Outcome:
    """Local scores with the global model's share α chosen on validation."""
    return choose(trial.setting.parts, _candidates(trial, scores, {}), shown + trial.global_shown, epochs=epochs)


def _candidates(trial: Trial, scores: dict[str, Tensor], about: dict[str, Any]) -> list[Candidate]:
    def answer(alpha: float) -> Answer:
        return lambda name: torch.lerp(scores[name], trial.global_scores[name], alpha)

    return [({**about, "alpha": alpha}, answer(alpha)) for alpha in ALPHAS]


ROWS: dict[str, tuple[str, Callable[[Trial], Outcome | None]]] = {
    "global": ("one global model", of_global),
    "ensemble": ("ensemble of equal size", of_ensemble),
    "loca": ("LOCA as it is", of_loca),
    "ensemble-cost": ("ensemble of equal training cost", of_ensemble_at_equal_cost),
    "answer-width": ("answer bandwidth chosen on validation", by_answer_width),
    "strength": ("α per user from membership strength", by_strength),
    "gains": ("answer weights shrunk by validated gains", by_gains),
    "z-global": ("z-scores: global model + LOCA", blended_with_global),
    "z-ensemble": ("z-scores: ensemble + LOCA", blended_with_ensemble),
    "bias": ("correction: a bias per community", by_bias),
    "low-rank": ("correction: rank 32", by_low_rank),
    "fine-tuned": ("correction: fine-tuned from the global model", by_fine_tuning),
    "kmeans": ("anchors by k-means", by_k_means),
    "cells": ("cells of k-means, softened", by_cells),
    "overlap": ("communities by overlap of histories", by_overlap),
    "two-scales": ("train weights at two scales", at_scales),
    "own-fit": ("communities by fit of the local models", by_own_fit),
    "true": ("true communities (bound)", by_true_communities),
}
