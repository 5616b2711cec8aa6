"""The base class of all recommenders: what they can do, and what each gets from its declared fields.

A model is a keyword-only dataclass. Its parameters are fields with checks (`whole`, `positive`, …), what it learns are
fields too (`learned`, `learned_sparse`, `learned_fact`), whose names end in an underscore and which are None before the
fit. From these declarations come copies, a readable form, files, and the checks of what strangers' files hold; a model
file has its algorithm alone.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from loca.data.histories import HistoryWeights, OnUnknown
from loca.data.id_map import Id
from loca.data.interactions import (
    Interactions,
    as_histories,
    as_matrix,
    as_moments,
    check_entries,
    without_zeros,
)
from loca.data.later import as_interactions, check_ids, read_later
from loca.data.schema import Schema
from loca.data.splits import HeldOut
from loca.errors import (
    ArgumentError,
    ConfigError,
    DataError,
    ModelFileError,
    NotFittedError,
    check_argument_names,
    check_arguments,
    check_counts,
    check_kind,
    did_you_mean,
)
from loca.evaluation.explain import Explanation, Sources, explain
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.evaluation.recommend import Candidates, Ids, Recommendations, recommend, similar_items
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import check_device
from loca.models.params import Strategy, check_params, param
from loca.persistence import save_model
from loca.persistence.fit_context import NO_CONTEXT, Callback, FitContext
from loca.persistence.learned import (
    Learner,
    learned_fact,
    learned_fields,
    move_parts,
    selections,
)
from loca.persistence.manifest import get_params as get_params
from loca.persistence.manifest import is_model, parameter_names
from loca.remarks import Remarks, collect_remarks, joined_remarks, remark, shown_remarks
from loca.text_table import Readable, TextTable, html_text, many

Scores = npt.NDArray[np.float32]
ItemRows = npt.NDArray[np.int64]
SimilarityKind = Literal["symmetric", "directed"]
UserWeights = npt.NDArray[Any]
AnyModel = TypeVar("AnyModel")
Learned = TypeVar("Learned")
_ABOUT_A_FIT = ("train_data_", "best_epoch_", "remarks_", "report_", "device_")
_ARRAYS_OF_SIMILARITIES = 4  # weights in either direction, their product, and what comes back
_SHORT = 60
_LINE = 100  # the width that a model is printed in


@dataclass(frozen=True)
class TrainingData:
    """What a fit learns from, checked: a training matrix, one weight per user, and validation data if any."""

    train: Interactions | csr_array
    matrix: (
        csr_array  # (users, items), float32; the stored order of a row is the order of the history
    )
    user_weights: npt.NDArray[np.float32]  # (users,)
    validation: HeldOut | None = None
    context: FitContext = NO_CONTEXT  # checkpoint, callbacks and cache
    metric: Metric = DEFAULT_METRIC  # what choices on validation are made by
    device: str = "auto"  # where the fit computes

    @classmethod
    def of(
        cls,
        train: Interactions | csr_array,
        user_weights: UserWeights | None = None,
        device: str = "auto",
    ) -> Self:
        """Training data without validation; every user weighs 1 where no weights are given."""
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0])
        return cls(train, matrix, weights, device=device)

    @cached_property
    def histories(self) -> csr_array:
        """The histories with their recency, (users, items): what places and answers users."""
        return as_histories(self.train)

    @cached_property
    def moments(self) -> csr_array | None:
        """The moment of every entry of the matrix, found by sorting all pairs; None where each is one of its own."""
        return as_moments(self.train)

    def weighted_rows(self) -> tuple[csr_array, npt.NDArray[np.float32]]:
        """The rows of the users with a weight above 0, and these weights."""
        support = np.flatnonzero(self.user_weights)
        return csr_array(self.matrix[support]), self.user_weights[support]

    def inside(self, name: str) -> Self:
        """The same data for a part of the model, whose progress is saved inside that name."""
        return replace(self, context=self.context.of_part(name))

    def fit_part(self, name: str, model: AnyModel) -> AnyModel:
        """A part of a model, fitted on the same data, or found in the cache of fits."""
        weights = None if (self.user_weights == 1).all() else self.user_weights
        part: Any = self.context.fit_part(
            name,
            model,
            self.train,
            user_weights=weights,
            validation=self.validation,
            metric=self.metric,
            device=self.device,
        )
        part.train_data_ = None  # stored once, by the whole
        return cast(AnyModel, part)


def is_epoch(value: object) -> bool:
    """Return whether a value is the number of an epoch."""
    return type(value) is int and value >= 1


@dataclass(kw_only=True, eq=False, repr=False)
class BaseEstimator(Learner, Readable):
    """Learns from histories with user weights; a recommender, or a part of one such as an embedder.

    A subclass is decorated with `@dataclass(kw_only=True, eq=False, repr=False)`, declares its parameters and what it
    learns, and implements `_fit`.
    """

    train_data_: Interactions | None = field(
        default=None, init=False
    )  # None: fitted on a bare matrix
    # Of early stopping, where it learns by epoch.
    best_epoch_: int | None = learned_fact(
        "a whole number ≥ 1", is_epoch, selects="epochs", optional=True
    )
    remarks_: Remarks = field(default=(), init=False)  # caveats of the data and of the fit
    report_: str = field(
        default="", init=False
    )  # of the fit that chose it, before a refit or in its file
    device_: str = field(default="auto", init=False)  # where it was fitted or moved to; in no file

    def __post_init__(self) -> None:
        """Refuse parameters outside of what their fields declare."""
        check_params(self)

    def __repr__(self) -> str:
        return "\n".join([written(self), *shown_remarks(self.remarks_)])

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Refuse a parameter that the class does not have, and name the nearest."""
        kind: type = cls
        names = parameter_names(kind)
        check_argument_names(kind.__name__, names, params)
        if args and names:
            written = f"{kind.__name__}({names[0]}={args[0]!r:.40})"
            raise ArgumentError(f"{kind.__name__}: parameters are given by name; write {written}")
        return super().__new__(cls)

    def shown(self) -> list[str]:
        """Return what a person reads: the parameters that are not at their defaults, and what it was fitted on.

        Returns
        -------
        list of str
        """
        if not self.is_fitted:
            return [repr(self)]
        notes = shown_remarks(self.remarks_)
        if (data := self.train_data_) is None:
            return [written(self), "fitted", *notes]
        sizes = f"{data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions"
        return [written(self), f"fitted on {sizes}", *notes]

    def _repr_html_(self) -> str:
        rows = tuple((name, written(value)) for name, value in get_params(self).items())
        table = TextTable(("", ""), rows, names=2).html()
        return f"{html_text(self.shown())}\n<details><summary>parameters</summary>\n{table}\n</details>"

    @property
    def is_fitted(self) -> bool:
        """Whether it has learned something."""
        found = (
            value
            for name, value in vars(self).items()
            if name.endswith("_") and name not in _ABOUT_A_FIT
        )
        return any(
            value is not None and not (isinstance(value, tuple) and not value) for value in found
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the constructor's arguments by name, as the model holds them now.

        Parameters
        ----------
        deep : bool, default True
            Also those of the models among them, under names such as `base__l2`, as scikit-learn has it.

        Returns
        -------
        dict of str to Any
            The values themselves, not copies.
        """
        params = get_params(self)
        if deep:
            for name, part in list(params.items()):
                if has_params(part):
                    inside = (
                        part.get_params() if isinstance(part, BaseEstimator) else get_params(part)
                    )
                    params |= {f"{name}__{inner}": value for inner, value in inside.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters; what was learned is forgotten, and all stays as it was where a value is refused.

        Parameters
        ----------
        **params : Any
            New values by name; `base__l2` is the parameter `l2` of the model that is the parameter `base`.

        Returns
        -------
        Self
            The model itself, unfitted.

        Raises
        ------
        ConfigError
            Where the model has no such parameter, or the value is not valid.
        """
        changed = clone(self, **params)  # refuses what is wrong before anything is changed
        for name, value in get_params(changed).items():
            if name in {one.partition("__")[0] for one in params}:
                setattr(self, name, value)
        self._forget()
        self.__post_init__()
        return self

    def __sklearn_clone__(self) -> Self:
        return clone(self)

    def _forget(self) -> None:
        """Make room for what a fit learns."""
        for one in fields(self):
            if not one.init:
                setattr(self, one.name, one.default)

    def selected(self) -> Self:
        """Make an unfitted copy with what this fit selected on validation, for a refit without it.

        Returns
        -------
        Self
            The copy.
        """
        return clone(self, **selections(self))

    def facts(self) -> dict[str, Any]:
        """Return what is worth knowing of the fitted model, as JSON values by name."""
        return {}

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate what a fit takes, at most.

        Parameters
        ----------
        data : DataSize
            Users, items and entries of the training data.

        Returns
        -------
        MemoryUse
            Bytes in main memory, on the device, and in files.
        """
        raise ConfigError(f"{type(self).__name__}: what a fit takes is not known for this model")

    def report(self) -> str:
        """Describe what each part earned on validation, and what else the fit that chose it ended with.

        Returns
        -------
        str
            Lines of text; empty for a model without parts or remarks. A refit and a file do not change it.
        """
        return self.report_ or self._report()

    def _report(self) -> str:
        """What the last fit says of itself."""
        return "\n".join(str(one) for one in self.remarks_ if one.kind == "training")

    @check_arguments
    def fit(
        self,
        train: Any,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
        metric: Metric | str = DEFAULT_METRIC,
        device: str = "auto",
        callbacks: Sequence[Callback] = (),
        context: FitContext = NO_CONTEXT,
    ) -> Self:
        """Learn from the training data; what an earlier fit learned is forgotten.

        Parameters
        ----------
        train : Interactions, csr_array, path or data frame
            The interactions, or what `read_interactions` makes some of. Of a users × items matrix the values are
            weights, and the stored order of a row is the order of the history, oldest first.
        user_weights : array of numbers ≥ 0, optional
            One per user, all 1 where none are given. A user of weight 2 counts as two equal users.
        validation : HeldOut, optional
            For early stopping and other choices; most models have no use for it.
        metric : Metric or str, default "ndcg@100"
            What these choices are made by.
        device : str, default "auto"
            Where it computes: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, a GPU where there is one.
            Networks, and other models that answer on a GPU, stay there; `to` moves them.
        callbacks : sequence of Callback, default ()
            What looks at the score after each evaluation on validation, and may end a training by
            `StopFit`.
        context : FitContext, optional
            Checkpoint and cache of this fit; models that are solved in one piece do without.

        Returns
        -------
        Self
            The model itself.
        """
        if validation is not None:
            check_kind(
                "validation",
                validation,
                HeldOut,
                "give a part of a split, such as split.validation",
            )
        check_device(device)
        if callbacks:
            context = replace(context, callbacks=(*context.callbacks, *callbacks))
        with collect_remarks() as collected:
            if not issparse(train):
                train = as_interactions(train, "train")
            data = TrainingData.of(train, user_weights, device)
            data = replace(data, validation=validation, context=context, metric=Metric.of(metric))
            self._forget()  # what an earlier fit learned makes room
            self.device_ = device
            self.train_data_ = train if isinstance(train, Interactions) else None
            self._fit(data)
        of_data = train.remarks if isinstance(train, Interactions) else ()
        self.remarks_ = joined_remarks(of_data, collected.remarks)
        return self

    def _fit(self, data: TrainingData) -> None:
        """Set what is learned from the training data."""
        raise NotImplementedError

    def to(self, device: str) -> Self:
        """Move what answers to a device.

        A network, and whatever else computes its answers on a GPU, moves; a model that answers in
        main memory stays there. An update computes on the same device.

        Parameters
        ----------
        device : str
            `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, a GPU where there is one.

        Returns
        -------
        Self
            The model itself.

        Raises
        ------
        ConfigError
            Where there is no such device.

        Examples
        --------
        >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12).interactions
        >>> model = loca.MultVAE(latent=8, epochs=1).fit(data).to("cpu")
        >>> model.score(data.histories()).shape
        (60, 30)
        """
        check_device(device)
        self._move(device)
        self.device_ = device
        return self

    def _move(self, device: str) -> None:
        """Move what answers on a device, and the fitted parts."""
        move_parts(self, device)

    def save(self, folder: str | Path) -> None:
        """Write the fitted model into a folder, whole or not at all.

        Parameters
        ----------
        folder : str or Path
            Made where it is missing; a model that is there is replaced. `loca.load` reads it.
        """
        save_model(self, folder)


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(BaseEstimator):
    """Score all items for any history, known user or not: the base class of all models.

    A subclass declares its parameters (`loca.models.params`) and what it learns
    (`loca.persistence.learned`), and implements `_fit` and `score`. The class attributes say what a
    model can do, so that nobody has to look at its class.

    Attributes
    ----------
    role : {"single", "local", "ensemble", "blend", "auto"}
        What kind of model it is: one by itself, one made of others, or one that chooses.
    learns_by_epoch : bool
        Whether it is trained an epoch at a time, with `begin`, and stopped early.
    stackable : bool
        Whether many such networks can be trained as one.
    is_linear : bool
        Whether it has dense item-to-item weights in closed form, with `solve_each`.
    is_additive : bool
        Whether its scores are a sum over the items of a history, whatever the history is.
    uses_order : bool
        Whether it, or a model that it is made of, learns from the order of a history.
    gives_logits : bool
        Whether log softmax of its scores is a log-probability.
    takes_new_items : bool
        Whether items that it has not seen enter by `update`.
    similarity_kind : {"symmetric", "directed"} or None
        Whether the similarity of i to j is also that of j to i; None where it knows no similarity of items.
    train_data_ : Interactions or None
        What it was fitted on; None where that was a bare matrix.
    best_epoch_ : int or None
        The epoch of the best validation score, where it learns by epoch.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.EASE(l2=10)
    >>> isinstance(model, loca.Recommender)
    True
    >>> model.fit(data).score(data.histories()).shape
    (60, 30)
    """

    role: ClassVar[Literal["single", "local", "ensemble", "blend", "auto"]] = "single"
    learns_by_epoch: ClassVar[bool] = (
        False  # trained an epoch at a time, with `begin`, and stopped early
    )
    stackable: ClassVar[bool] = False  # many such networks can be trained as one

    @property
    def is_linear(self) -> bool:
        """Whether it has dense item-to-item weights in closed form, with `solve_each`."""
        return False

    @property
    def is_additive(self) -> bool:
        """Whether its scores are a sum over the items of a history, whatever the history is."""
        return False

    @property
    def uses_order(self) -> bool:
        """Whether it, or a model that it is made of, learns from what follows what; a history is no set to it."""
        return any(model.uses_order for model in self.inner_models())

    @property
    def gives_logits(self) -> bool:
        """Whether log softmax of its scores is a log-probability."""
        return False

    def inner_models(self) -> Iterator[Recommender]:
        """Iterate over the models among its parameters, those in lists and tuples included."""
        for value in get_params(self).values():
            for one in value if isinstance(value, list | tuple) else [value]:
                if isinstance(one, Recommender):
                    yield one

    @property
    def takes_new_items(self) -> bool:
        """Whether items that it has not seen enter by an update; else by a fit alone."""
        return all(model.takes_new_items for model in self.inner_models())

    @check_arguments
    def update(self, new: Any, *, epochs: int = 5) -> Self:
        """Take in new interactions without a full fit.

        The histories of known users grow, and new users enter; parameters, and what validation chose, stay. Models in
        closed form (`EASE`, `NextEASE`, `SLIM`, `ItemKNN`, `Popularity`) are solved again from all interactions, which
        is what a fit would give, new items included. Networks go on from their present weights for some epochs, `WMF`
        from its present factors; the factors of `LLORMA` and `SGLSVD` stay, and answers fold the longer histories in.
        Of a `Loca` communities and α stay, of a `Blend` its weights, while their parts are updated. Networks, `LLORMA`
        and `SGLSVD`, and models made of one, leave out interactions with items that they do not know. Every user counts
        the same: weights given to `fit` are not stored.

        Parameters
        ----------
        new : Interactions, data frame or path
            Users, items and perhaps times, matched by id, read by the rules of the fit (columns, minimum rating,
            weights, unit of times, repeats), and merged by `Interactions.merged`.
        epochs : int, default 5
            Epochs of networks, and rounds of `WMF`, on all interactions, the known ones included.

        Returns
        -------
        Self
            The model itself. After an error it is as it was.

        Raises
        ------
        DataError
            Where the model has no training data to add to, or nothing new enters.

        Examples
        --------
        >>> import polars
        >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
        >>> model = loca.EASE(l2=10).fit(data)
        >>> _ = model.update(polars.DataFrame({"user": ["new", "new"], "item": ["i01", "i02"]}))
        >>> model.train_data_.n_users
        61
        """
        check_counts(epochs=epochs)
        kind, known = type(self).__name__, self.train_data_
        if known is None:
            self.count_items()  # a model that has not been fitted is refused
            problem = "has no training data to add to: it was fitted on a bare matrix, or is a part of another model"
            raise DataError(f"this {kind} {problem}; fit it on Interactions")
        with collect_remarks() as collected:
            added = read_later(new, known, "update")
            check_ids(added, known, "update")
            entering = known.entering(added, new_items=self.takes_new_items)
            left_out = len(added) - len(entering)
            if not len(entering):
                why = f": all {left_out:,} are with items that this {kind} knows only after a fit"
                problem = "update: expected at least one new interaction, found none"
                raise DataError(f"{problem}{why if left_out else ''}")
            if left_out:
                text = f"left out, with items that this {kind} does not know; a fit takes them in"
                remark("items-left-out", f"{many(left_out, 'interaction')} {text}")
            if known.times is not None and added.times is None:
                text = "the new interactions have no times: they count as newer than all known ones"
                remark("no-times", text)
            _remark_minima(known.schema)
            merged = known.merged(entering)
            if self.updates_by_refit and known.is_sorted_by_id():
                merged = merged.sorted_by_id()
            data = TrainingData.of(merged, device=self.device_)
            updated = vars(self.updated(data, epochs))
        remarks = joined_remarks(self.remarks_, added.remarks, collected.remarks)
        vars(self).update(updated, train_data_=merged, report_=self.report_, remarks_=remarks)
        return self

    @property
    def updates_by_refit(self) -> bool:
        """Whether an update learns everything again, so that it gives what a fit would give."""
        return type(self)._update is Recommender._update

    def updated(self, data: TrainingData, epochs: int) -> Self:
        """A copy that has taken in data with the same users and items in front; parts of a model are updated by it."""
        one = copy.copy(self)
        one._update(data, epochs)
        one.train_data_ = None  # stored once, by the whole
        return one

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Learn from the data, new interactions among them, and change nothing that a copy shares.

        Where nothing else is said all is learned again, as for models in closed form, whose fit takes seconds.
        """
        fresh = self.selected()
        fresh.fit(data.train, user_weights=data.user_weights, device=data.device)
        vars(self).update(vars(fresh) | get_params(self))

    def score(self, histories: csr_array) -> Scores:
        """Score every item for histories.

        Parameters
        ----------
        histories : csr_array
            Users × items, as `Interactions.histories` makes them; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items, larger is better; seen items are scored like all others.
        """
        raise NotImplementedError

    @check_arguments
    def recommend(
        self,
        who: Any,
        n: int = 10,
        *,
        hide_seen: bool = True,
        only: Ids = None,
        never: Ids = None,
        candidates: Candidates = None,
        on_unknown: OnUnknown = "error",
        recency: HistoryWeights = "model",
    ) -> Recommendations:
        """Find the n best items for each user; the parameters are those of `loca.recommend`.

        Parameters
        ----------
        who : user id, list of ids, list or dict of histories, data frame, Interactions or sparse matrix
            Users that the model knows, by id; or anybody's histories, such as lists of item ids, oldest first.
        n : int, default 10
            How many items to list for each user; at most as many as there are.
        hide_seen : bool, default True
            Leave out the items of a user's history.
        only : iterable of ids or None, default None
            The items to choose from; None takes all.
        never : iterable of ids or None, default None
            Items to leave out.
        candidates : dict or None, default None
            The items to choose from for each user id; a user who is not in it may get any.
        on_unknown : {"error", "skip", "popular"}, default "error"
            What becomes of unknown users and items and of empty histories.
        recency : Recency, None or "model", default "model"
            How the items of a history are weighted: by its own recency, else the model's; None weights all alike.

        Returns
        -------
        Recommendations
            Unpacks as `items, scores`; `to_polars` and `to_pandas` give a table.
        """
        return recommend(
            self,
            who,
            n,
            hide_seen=hide_seen,
            only=only,
            never=never,
            candidates=candidates,
            on_unknown=on_unknown,
            recency=recency,
        )

    @check_arguments
    def similar_items(self, items: Any, n: int = 10) -> Recommendations:
        """Find the items that are most similar to each of some items, by `similarities`.

        What goes with an item, whatever that is similar to, is `recommend([[item]])`: the list for a history of that
        item alone.

        Parameters
        ----------
        items : item id or list of item ids
            Items that the model knows.
        n : int, default 10
            How many items to list for each; at most as many as there are.

        Returns
        -------
        Recommendations
            Its `users` are the given items, its scores the similarities. Only similarities above 0 are listed; other
            places stay empty.

        Raises
        ------
        DataError
            Where an item is not known, or the model knows no similarity of items.

        Examples
        --------
        >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
        >>> model = loca.EASE(l2=10).fit(data)
        >>> model.similar_items(["i03", "i07"], n=2).items.shape
        (2, 2)
        """
        return similar_items(self, items, n)

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """Whether the similarity of i to j is also that of j to i; None: it knows no similarity of items."""
        return None

    def similarities(self, item_rows: Any) -> Scores:
        """Measure how similar every item is to each of some items, from −1 to 1.

        The measure is the model's own. EASE and SLIM: the partial correlation. ItemKNN: its cosine. NextEASE: how
        strongly an item follows, relative to the one that follows most; this alone is directed. WMF, SGLSVD, LLORMA
        and networks: the cosine of the items' factors or output weights. Loca: that of its global model; Ensemble and
        Blend: the mean over their models; Auto: that of what was chosen. The page "Which model when" has the formulas.

        A class of your own sets `similarity_kind`, and implements `_similarities(item_rows)`.

        Parameters
        ----------
        item_rows : sequence of int
            Rows of items, from 0; `train_data_.items.rows(ids)` gives them.

        Returns
        -------
        ndarray of float32
            Given items × all items; an item has 1 with itself.

        Raises
        ------
        DataError
            Where there is no such row, or the model knows no similarity of items.

        Examples
        --------
        >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
        >>> model = loca.EASE(l2=10).fit(data)
        >>> model.similarities([3, 7]).shape
        (2, 30)
        >>> bool(model.similarities([3])[0, 7] == model.similarities([7])[0, 3])
        True
        """
        if self.similarity_kind is None:
            raise DataError(
                f"{type(self).__name__} knows no similarity of items; recommend([[item]]) lists what goes with one, "
                "and a class of your own sets `similarity_kind` and implements `_similarities`"
            )
        item_count = self.count_items()
        rows = check_item_rows(item_rows, item_count)
        plan_memory(
            f"similarities of {len(rows):,} items",
            _ARRAYS_OF_SIMILARITIES * 4 * len(rows) * item_count,
            "ask for fewer items at once",
        )
        similarities = self._similarities(rows)
        similarities[np.arange(len(rows)), rows] = 1
        return similarities

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Similarities from −1 to 1, (item_rows, items), in a new array; an item's own does not matter."""
        raise NotImplementedError

    @check_arguments
    def explain(
        self,
        who: Any,
        item: Id | None = None,
        n: int = 5,
        *,
        recency: HistoryWeights = "model",
        order: Any = None,
    ) -> Explanation:
        """Explain the list for one history: which of its items speak for each listed item, and by how much.

        The contributions of a linear model (EASE, NextEASE, SLIM, ItemKNN, and Loca, Ensemble and Blend made of these)
        are exact: they add up to the score. Of a Loca they are those of the communities that answer this history, of a
        Blend those on the scale of its scores. For all other models a contribution is found by leaving one out: the
        score of the history less its score without the item. Of `Popularity` nothing depends on the history.

        Parameters
        ----------
        who : user id, list of item ids in a list, dict, data frame, Interactions or csr_array
            One history, in any form that `recommend` takes.
        item : id or None, default None
            The one item to explain, listed or not; None explains the n best.
        n : int, default 5
            Length of the list, and of the lists of what answers inside the model.
        recency : Recency, None or "model", default "model"
            How the items of the history are weighted, as in `recommend`.
        order : ndarray or None, default None
            The history's item rows, oldest first, where `who` is a sparse row, which stores no order.

        Returns
        -------
        Explanation
            Prints as text; `to_polars` and `to_pandas` give the contributions.

        Examples
        --------
        >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
        >>> model = loca.EASE(l2=10).fit(data)
        >>> print(model.explain([["i03", "i07"]], item="i11"))  # doctest: +ELLIPSIS
        History of 2 items, newest first: ...
        """
        return explain(self, who, item, n, recency=recency, order=order)

    def additive_at(self, history: csr_array) -> Callable[[csr_array], Scores] | None:
        """What scores rows as a sum over their items, and this history as `score` does; None where there is nothing.

        A model of models may be such a sum only as long as its shares are those of this history.
        """
        return self.score if self.is_additive else None

    def sources_of(
        self, history: csr_array, items: Any, n: int, known: Interactions | None
    ) -> Sources | None:
        """What answers inside the model for one history: communities, or the parts of a blend; None where it is one.

        `items` are the rows of the listed items, n the length of the lists of what answers, and `known` names users.
        """
        return None

    def _check_histories(self, histories: csr_array) -> csr_array:
        """Histories as float32 rows over the model's items; refuse others, and all before the model is fitted."""
        return check_histories(histories, self.count_items())

    def check_known(self, known: Interactions) -> None:
        """Refuse training data that does not fit what was learned, as a folder may hold it."""
        if self.count_items() != known.n_items:
            raise ModelFileError(
                f"the model scores {self.count_items()} items, {known.n_items} are named"
            )

    def count_items(self) -> int:
        """Count the items that it scores."""
        kind: Any = type(self)
        for name, learned_field in learned_fields(kind).items():
            if learned_field.optional:
                continue
            sizes = learned_field.sizes(fitted(getattr(self, name), self))
            if "items" in sizes:
                return sizes["items"]
        raise NotImplementedError


class ItemToItemModel(Recommender):
    """A model that is items × items weights, `weights_`, dense or sparse: scores = history · weights."""

    similarity_kind: ClassVar[SimilarityKind] = "symmetric"

    weights_: Any

    @property
    def is_additive(self) -> bool:
        """Whether its scores are a sum over the items of a history: always."""
        return True

    def score(self, histories: csr_array) -> Scores:
        """Multiply histories by the item-to-item weights.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        scores = self._check_histories(histories) @ self.weights_
        return np.asarray(
            scores.toarray() if isinstance(scores, csr_array) else scores, dtype=np.float32
        )

    def _similarities(self, item_rows: ItemRows) -> Scores:
        weights = fitted(self.weights_, self)

        def incoming() -> Scores:
            return _as_dense(weights[:, item_rows]).T

        return self.similarities_of_weights(_as_dense(weights[item_rows]), incoming)

    def similarities_of_weights(self, outgoing: Scores, incoming: Callable[[], Scores]) -> Scores:
        """Compute partial correlations from weights: sign · √(B_ij · B_ji) where both have one sign, else 0.

        Parameters
        ----------
        outgoing : ndarray of float32
            Given items × all items: the weights B_ij from given items i to all items j.
        incoming : callable
            Gives the weights B_ji from all items to the given ones, in the same shape.

        Returns
        -------
        ndarray of float32
            Given items × all items. Of EASE, where B_ij = −P_ij / P_jj with the inverse P of the regularised Gram
            matrix, they are exactly −P_ij / √(P_ii · P_jj).
        """
        back = incoming()
        signs = np.sign(outgoing)
        sizes = np.sqrt(np.abs(outgoing)) * np.sqrt(np.abs(back))
        # Weights that were solved apart from each other, as sparse ones are, may have a product above 1.
        return np.where(signs == np.sign(back), signs * np.minimum(sizes, 1), 0)


def _as_dense(weights: Any) -> Scores:
    """Some rows or columns of weights as an array of their own."""
    return weights.toarray() if isinstance(weights, csr_array) else np.array(weights)


def check_item_rows(item_rows: Any, item_count: int) -> ItemRows:
    """Row numbers of items as an array; refuse anything else."""
    rows = np.asarray(item_rows)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise DataError(f"item_rows: expected a list of row numbers, found {item_rows!r:.60}")
    outside = rows[(rows < 0) | (rows >= item_count)]
    if len(outside):
        raise DataError(f"item_rows: expected rows from 0 to {item_count - 1}, found {outside[0]}")
    return rows.astype(np.int64)


def model_param(*, optional: bool = False) -> Any:
    """A parameter that is a recommender, without a default, or None by default where it is optional."""
    wanted = "a model such as EASE()" + " or none" * optional
    default = None if optional else ...
    return param(
        default, wanted, lambda one: (optional and one is None) or isinstance(one, Recommender)
    )


def clone(model: AnyModel, **changes: Any) -> AnyModel:
    """Copy a model without what it learned, with some parameters changed.

    Parameters
    ----------
    model : a model
        Fitted or not, or a strategy such as a finder; models among its parameters are copied too.
    **changes : Any
        New values of parameters, by name; `base__l2` is the parameter `l2` of the model that is the parameter `base`.

    Returns
    -------
    The unfitted copy, of the same class.

    Raises
    ------
    ConfigError
        Where the model has no such parameter, or the value is not valid.

    Examples
    --------
    >>> model = loca.EASE(l2=250, denoising=0.3)
    >>> loca.clone(model, l2=500)
    EASE(l2=500, denoising=0.3)
    >>> model
    EASE(l2=250, denoising=0.3)
    """
    params, inner = get_params(model), dict[str, dict[str, Any]]()
    for name, value in changes.items():
        own, _, rest = name.partition("__")
        if own not in params or (rest and not has_params(params[own])):
            known = model.get_params() if isinstance(model, BaseEstimator) else params
            nearest = did_you_mean(name, known) or f"; it has {', '.join(params) or 'none'}"
            raise ConfigError(f"unknown parameter {name!r} for {type(model).__name__}{nearest}")
        if rest:
            inner.setdefault(own, {})[rest] = value
        else:
            params[own] = value
    copies = {name: _without_learned(value) for name, value in params.items()}
    return type(model)(**copies | {own: clone(copies[own], **more) for own, more in inner.items()})


def _remark_minima(schema: Schema) -> None:
    """Tell that users and items below the minima of a fit enter by an update."""
    minima = {"users": schema.min_user_interactions, "items": schema.min_item_interactions}
    below = [
        f"{what} with fewer than {least} interactions" for what, least in minima.items() if least
    ]
    if below:
        text = "were left out at the fit; an update takes them as they are"
        remark("minima", f"{' and '.join(below)} {text}")


def has_params(value: object) -> bool:
    """Return whether a value is a model or a strategy, which have parameters of their own."""
    return is_model(value) or isinstance(value, Strategy)


def _without_learned(value: Any) -> Any:
    """Return the value with an unfitted copy in place of every model in it."""
    if type(value) is tuple:
        return tuple(_without_learned(part) for part in value)
    return clone(value) if has_params(value) else value


def written(value: Any, depth: int = 0) -> str:
    """A parameter as Python writes it, on several lines where one would be too long.

    An array is written by its shape, and what is long by … : a model inside of a model inside of a model, and a tuple.
    """
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, BaseEstimator | Strategy):
        defaults = inspect.signature(type(value)).parameters
        params = (
            (name, written(one, depth + 1), defaults[name].default)
            for name, one in get_params(value).items()
        )
        parts = [f"{name}={text}" for name, text, default in params if text != written(default)]
        begin, end = f"{type(value).__name__}(", ")"
    elif type(value) is tuple and len(value) > 1:
        parts, begin, end = [written(one, depth) for one in value], "(", ")"
    else:
        return repr(value)
    text = f"{begin}{', '.join(parts)}{end}"
    if len(text) <= (_SHORT if depth > 1 and begin != "(" else _LINE) and "\n" not in text:
        return text
    if depth > 1 and not (begin == "(" and isinstance(value[0], BaseEstimator)):
        return f"{begin}…{end}"
    return (
        "\n    ".join([begin, *(f"{part},".replace("\n", "\n    ") for part in parts)]) + f"\n{end}"
    )


def fitted(learned: Learned | None, model: object) -> Learned:
    """What the model has learned; refuses to go on when it has not been learned yet."""
    if learned is None:
        raise NotFittedError(
            f"this {type(model).__name__} has not been fitted; call fit(train) first"
        )
    return learned


def check_user_weights(weights: UserWeights | None, user_count: int) -> npt.NDArray[np.float32]:
    """One weight ≥ 0 per user, not all zero; ones where none are given."""
    if weights is None:
        return np.ones(user_count, np.float32)
    checked = np.asarray(weights, dtype=np.float32)
    if checked.shape != (user_count,):
        raise DataError(
            f"user_weights: expected {user_count} numbers, found an array of shape {checked.shape}"
        )
    if not np.isfinite(checked).all() or (checked < 0).any() or not checked.any():
        wrong = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
        found = f"{checked[wrong[0]]} for user row {wrong[0]}" if len(wrong) else "zeros only"
        raise DataError(
            f"user_weights: expected finite numbers ≥ 0, not all of them zero; found {found}"
        )
    return checked


def supported_users(
    matrix: csr_array, user_weights: UserWeights | None
) -> tuple[npt.NDArray[np.int64], Scores]:
    """The users to learn from, those with a weight above 0 and something stored, and their weights."""
    weights = check_user_weights(user_weights, matrix.shape[0])
    support = np.flatnonzero((weights > 0) & (np.diff(matrix.indptr) > 0))
    if not len(support):
        raise DataError(
            "user_weights: expected a user with a history among those with a weight above 0, found none"
        )
    return support, weights[support]


def check_histories(histories: csr_array, item_count: int) -> csr_array:
    """Histories as float32 CSR rows over the model's own items."""
    rows = csr_array(histories)
    if rows.shape[1] != item_count:
        raise DataError(f"histories: expected {item_count} items, found {rows.shape[1]}")
    stored: csr_array = without_zeros(check_entries(rows, "histories"))
    return stored if stored.dtype == np.float32 else stored.astype(np.float32)


def sparse_weight_bytes(items: int, weights: int) -> int:
    """Value and item of each weight, and where the weights of an item begin, in memory and in a file."""
    return 12 * weights + 8 * (items + 1)
