"""Which communities a Loca has: forms are compared on validation, with a small linear model before the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.mixture import choose_components
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import DataError
from loca.evaluation.metrics import Metric, Values
from loca.local.local_models import Validator
from loca.models.ease import EASE
from loca.models.recommender import TrainingData, clone, fitted
from loca.progress import say
from loca.remarks import remark

Form = Any  # a Loca whose communities are of one kind
# Forms are first compared by an EASE of the most popular items, on some of the users.
_ITEMS, _USERS, _JUDGES, _L2 = 1000, 20_000, 2_000, 700.0
_COMPONENTS = (4, 6, 8, 12, 16, 24)
_FOCUSES = (0.5, 0.8)
# A gain on validation counts where it exceeds so many standard errors: one side of a 95 % interval.
_SURE = 1.645
# More where the winner was chosen from many forms, temperatures and global shares: some look better by chance.
_SURE_OF_MANY = 3.0


def fit_best_form(model: Form, data: TrainingData) -> Form:
    """Fit the forms that a `Loca` with communities="auto" may take, whose global model is fitted; give the best.

    Networks may have random groups in place of communities, which is an ensemble of models that differ. Local models
    that are solved must be better than the global model alone by more than chance.
    """
    if data.validation is None:
        text = (
            "Loca: the kind of communities is chosen on validation; without it mixtures are taken"
        )
        remark("no-validation", text)
        plain = clone(model, communities="mixture")
        plain.global_ = model.global_
        plain.fit_local(data)
        return plain
    best: tuple[Form, Values] | None = None
    for number, form in enumerate(_forms(model, data)):
        form.global_ = model.global_
        form.fit_local(data.inside(f"form {number}"))
        values = values_of(form, data.validation, data.metric)
        say(f"{describe(form)}: validation {data.metric.label} {values.mean():.4f}")
        if best is None or values.mean() > best[1].mean():
            best = form, values
    assert best is not None
    form, values = best
    if not model.base.learns_by_epoch and model.alpha == "validation":
        nobody = csr_array((0, 0))
        validator = Validator(data.validation, nobody, model.global_, data.metric)
        alone = validator.values(None, 1.0)
        if not is_surely_above(values, alone, _SURE_OF_MANY):
            form.alpha_, form.locality_ = 1.0, replace(form.locality_, alpha=1.0)
            remark(
                "communities",
                "the communities are not significantly better than the global model on validation "
                f"({alone.mean():.4f}), which answers alone",
            )
    say(f"communities: {describe(form)}")
    return form


def describe(form: Form) -> str:
    """A form in a few words."""
    if form.communities == "kernel":
        return f"{form.anchors} kernels"
    if form.communities == "random":
        return f"{form.mixtures} × {form.anchors // form.mixtures} groups drawn at random"
    return f"{form.mixtures} × {form.anchors // form.mixtures} communities by likelihood, focus {form._focus():g}"


def values_of(form: Form, held_out: HeldOut, metric: Metric) -> Values:
    """Return the value of each validation user by a fitted form."""
    answer_weights = form.answer_weights(held_out.history_matrix)
    validator = Validator(held_out, answer_weights, form.global_, metric)
    return validator.values(fitted(form.locals_, form), fitted(form.alpha_, form))


def is_surely_above(values: Values, others: Values, errors: float = _SURE) -> bool:
    """Whether the mean of paired differences exceeds so many of its standard errors."""
    gains = values - others
    return bool(gains.mean() > errors * gains.std() / max(len(gains), 1) ** 0.5)


def flattest(values: Sequence[Values]) -> int:
    """The place of the last of some users' scores, from sharp to flat answers, that is not surely below the best."""
    best = max(values, key=lambda one: float(one.mean()))
    return max(place for place, one in enumerate(values) if not is_surely_above(best, one))


def every_nth(count: int, most: int) -> npt.NDArray[np.int64]:
    """Row numbers below `count`, all or at most so many, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _forms(model: Form, data: TrainingData) -> list[Form]:
    """The forms to fit: the best by a linear model, and for networks random groups beside it."""
    users = int((np.diff(data.matrix.indptr) > 0).sum())
    count = model._anchor_count(users)
    kernel = clone(model, communities="kernel", anchors=count)
    focuses = _FOCUSES if model.focus is None else (model.focus,)
    if model.base.learns_by_epoch:
        mixtures = min(model.mixtures, count)
        parts = count // mixtures * mixtures
        mixed = clone(model, communities="mixture", anchors=parts, mixtures=mixtures)
        drawn = clone(mixed, communities="random", focus=None)
        return [_best_by_linear_model([mixed, kernel], data), drawn]
    among = [one for one in _COMPONENTS if one <= count] or [count]
    components = choose_components(
        data.train, among, rounds=20, seed=model.seed, device=data.device
    ).components
    shapes = [(min(count // components, model.mixtures), components, focus) for focus in focuses]
    shapes += [(1, count, focuses[0])] if count > components else []
    forms = [
        clone(model, communities="mixture", anchors=mixtures * size, mixtures=mixtures, focus=focus)
        for mixtures, size, focus in shapes
    ]
    return [_best_by_linear_model([*forms, kernel], data)]


def _best_by_linear_model(forms: Sequence[Form], data: TrainingData) -> Form:
    """The form that is best over a small EASE; the first unless another is."""
    try:
        small = _small(data)
    except DataError:  # nothing held out is among the popular items
        return forms[0]
    own: Any = forms[0].base
    base = clone(own) if own.is_linear else EASE(l2=_L2)
    weights, device = small.user_weights, small.device
    whole = small.context.fit(clone(base), small.train, user_weights=weights, device=device)
    scores = []
    users = int((np.diff(small.matrix.indptr) > 0).sum())
    for form in forms:
        fewer = {
            "anchors": min(form.anchors, users),
            "mixtures": min(form.mixtures, users),
            "embedding": None,
        }
        linear = clone(
            form, base=base, global_model=None, stopping="blended", alpha="validation", **fewer
        )
        linear.global_ = whole
        linear.fit_local(small)
        values = values_of(linear, fitted(small.validation, linear), data.metric)
        scores.append(float(values.mean()))
        over = f"over EASE of {small.matrix.shape[1]:,} items"
        say(f"{describe(form)}, {over}: validation {data.metric.label} {scores[-1]:.4f}")
    return forms[int(np.argmax(scores))]


def _small(data: TrainingData) -> TrainingData:
    """The most popular items, and some of the users where there are many."""
    matrix, held_out = data.matrix, data.validation
    assert held_out is not None
    order = np.argsort(-np.bincount(matrix.indices, minlength=matrix.shape[1]), kind="stable")
    popular = np.zeros(matrix.shape[1], dtype=bool)
    popular[order[:_ITEMS]] = True
    users, judges = (
        every_nth(matrix.shape[0], _USERS),
        held_out.of_users(every_nth(held_out.n_users, _JUDGES)),
    )
    train = data.train
    if isinstance(train, Interactions):
        some: Any = train.of_users(users).of_items(popular)
    else:
        some = csr_array(csr_array(train[users])[:, popular])
    histories, targets = (one.of_items(popular) for one in (judges.histories, judges.targets))
    small = TrainingData.of(some, data.user_weights[users], data.device)
    small_held_out = HeldOut(histories, targets, held_out.count_repeats)
    return replace(small, validation=small_held_out, metric=data.metric)
