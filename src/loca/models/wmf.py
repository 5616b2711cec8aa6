"""WMF (Hu, Koren, Volinsky 2008): factors of users and items that explain every pair, the stored ones with more force.

Frequency-scaled regularisation follows Rendle et al. 2021, "Revisiting the performance of iALS on item recommendation
benchmarks"; their weight of an unobserved pair is 1 / confidence here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from loca.memory import DataSize, MemoryUse
from loca.models import als
from loca.models.devices import choose_device, float32_products
from loca.models.params import positive, seed_param, share, whole
from loca.models.recommender import ItemRows, Recommender, Scores, SimilarityKind, TrainingData
from loca.models.similarity import cosines
from loca.persistence.learned import learned, learned_fact, with_items
from loca.progress import bar, say


@dataclass(kw_only=True, eq=False, repr=False)
class WMF(Recommender):
    """Score items by factors of users and items that minimise a weighted squared error: scores = x · y_i.

    The loss is Σ_ui c_ui (p_ui − x_u · y_i)² + Σ_u l_u ‖x_u‖² + Σ_i l_i ‖y_i‖² with p = 1 and c = 1 + `confidence`
    where a pair is stored, p = 0 and c = 1 elsewhere. A pair of value v counts v times as stored and 1 − v times as
    not stored: c = 1 + `confidence` · v as in the paper, but p falls towards 0 with v. For the scores only the product
    of `user_l2` and `item_l2` matters: factors can be made longer on one side and shorter on the other. A history is
    scored by solving for its factor, with its own values.

    Parameters
    ----------
    factors : int, default 256
        Size of a factor.
    confidence : float, default 40.0
        How much more a stored pair counts than one that is not, above 0.
    user_l2 : float, default 100.0
        Regularisation of a user's factor: l_u is this times (the user's sum of c / the mean of that over users) to the
        power `frequency_scaling`.
    item_l2 : float, default 100.0
        Regularisation of an item's factor, l_i, likewise.
    frequency_scaling : float, default 0.0
        How strongly both regularisations grow with the pairs of a user or an item, from 0 to 1; 0 makes them constant.
    iterations : int, default 10
        How often users' and items' factors are solved in turn.
    seed : int, default 0
        Seed of the initial factors.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    >>> model = loca.WMF(factors=2, user_l2=0.1, item_l2=0.1).fit(rows)
    >>> model.embed(rows).shape
    (4, 2)
    >>> items, scores = loca.recommend(model, csr_array([[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]), n=1)
    >>> items.tolist()
    [[1], [4]]
    """

    similarity_kind: ClassVar[SimilarityKind] = "symmetric"

    factors: int = whole(256)
    confidence: float = positive(40.0)
    user_l2: float = positive(100.0)
    item_l2: float = positive(100.0)
    frequency_scaling: float = share(0.0)
    iterations: int = whole(10)
    seed: int = seed_param()
    item_factors_: als.Floats = learned("items", "factors")
    mean_confidence_: float = learned_fact(
        "a number above 0", lambda mean: type(mean) is float and 0 < mean < math.inf
    )
    _columns: als.Columns | None = field(default=None, init=False)

    def _fit(self, data: TrainingData) -> None:
        """Alternate `iterations` times."""
        # All of one sign: the users' factors then begin with what is common to all, and a few iterations get further
        # (MovieLens 100K, mean of 8 seeds: .2819 instead of .2809).
        initial = als.initial_factors(self.seed, "items", data.matrix.shape[1], self.factors)
        self._alternate(data, np.abs(initial), self.iterations)

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Alternate from the present factors on; a new item has none, and gets one in the first iteration."""
        initial = with_items(self, data.matrix.shape[1]).item_factors_
        self._alternate(data, np.array(initial), min(epochs, self.iterations))

    def _alternate(self, data: TrainingData, initial: als.Floats, iterations: int) -> None:
        """Learn from initial factors of the items.

        The library `implicit` does it where it can: on a CPU, with equal users, values 1 and constant regularisation.
        It takes a few conjugate gradient steps where ours solves each step exactly, so that factors which are still on
        their way differ a little.
        """
        rows, weights = data.weighted_rows()
        rows = als.check_values(rows)
        device = als.plan_alternating("WMF", rows, self.factors, choose_device(data.device))
        confidences = rows.shape[1] + self.confidence * rows.sum(axis=1)
        self.mean_confidence_ = float(np.average(confidences, weights=weights))
        columns = None
        if (
            device.type == "cpu"
            and self.frequency_scaling == 0
            and (weights == 1).all()
            and (rows.data == 1).all()
        ):
            columns = _factors_by_implicit(self, rows, initial, iterations)
        if columns is None:
            start = torch.from_numpy(initial).to(device)
            item_confidences = weights.sum() + self.confidence * (rows.T @ weights)
            item_scales = (item_confidences / item_confidences.mean()) ** self.frequency_scaling
            items = als.Regression(
                start.new_ones(len(start)), start.new_tensor(self.item_l2 * item_scales)
            )
            users = als.Regression(
                start.new_tensor(weights), self._user_ridges(confidences, device)
            )
            with bar("WMF: iterations", iterations) as progress:
                columns = als.alternate(
                    rows, start, users, items, self.confidence, iterations, progress
                )
        self.item_factors_, self._columns = columns.factors.cpu().numpy(), columns

    def _user_ridges(self, confidences: npt.NDArray[Any], device: torch.device) -> Tensor:
        """The regularisation of users whose confidences sum to those given."""
        scales = (confidences / self.mean_confidence_) ** self.frequency_scaling
        return torch.from_numpy(np.asarray(self.user_l2 * scales, dtype=np.float32)).to(device)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Factors of users and items; those of the items stay."""
        return als.factor_memory(data, self.factors, folder=4 * data.items * self.factors)

    def _move(self, device: str) -> None:
        self._columns = None

    def score(self, histories: csr_array) -> Scores:
        """Multiply the factor of each history by every item's.

        Parameters
        ----------
        histories : csr_array
            Users × items, with values ≥ 0; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        solved, columns = self._fold_in(histories)
        with float32_products():
            return np.asarray((solved @ columns.factors.T).cpu().numpy())

    @property
    def embedding_size(self) -> int:
        """The size of a factor."""
        return self.factors

    def embed(self, histories: csr_array) -> als.Floats:
        """Solve for the factor of each history.

        Parameters
        ----------
        histories : csr_array
            Users × items, with values ≥ 0; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × `factors`.
        """
        return np.asarray(self._fold_in(histories)[0].cpu().numpy())

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Cosines of the items' factors."""
        return cosines(torch.from_numpy(np.array(self.item_factors_)), item_rows)

    def _fold_in(self, histories: csr_array) -> tuple[Tensor, als.Columns]:
        rows = als.check_values(self._check_histories(histories))
        if (
            self._columns is None
        ):  # a model that was loaded or moved brings its factors to a device on its first answer
            # A copy: mapped files may not be written to. A model trained on a GPU must answer where there is none.
            factors = torch.from_numpy(np.array(self.item_factors_))
            factors = factors.to(choose_device(self.device_))
            self._columns = als.Columns.as_turned(factors, factors.new_ones(len(factors)))
        device = self._columns.factors.device
        ridges = self._user_ridges(rows.shape[1] + self.confidence * rows.sum(axis=1), device)
        blocks = als.row_blocks(rows, self.factors, device)
        return als.solve_rows(blocks, self._columns, self.confidence, ridges), self._columns


def _factors_by_implicit(
    model: WMF, rows: csr_array, initial: als.Floats, iterations: int
) -> als.Columns | None:
    """The items' factors as the library `implicit` finds them from initial ones; None where it is not installed."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        say(
            "WMF: implicit is not installed (pip install loca[wmf]); the own solver finds the same factors"
        )
        return None
    # It knows one regularisation for both sides. Items' factors s times as long, and users' that much shorter, have
    # the same products, and the same loss once user_l2 is s² times and item_l2 1/s² times as large.
    stretch = np.float32((model.user_l2 / model.item_l2) ** 0.25)
    with threadpool_limits(1, "blas"):  # as it advises: its own threads do the work
        ridge, threads = math.sqrt(model.user_l2 * model.item_l2), torch.get_num_threads()
        solver = AlternatingLeastSquares(
            factors=model.factors, regularization=ridge, iterations=iterations, num_threads=threads
        )
        solver.user_factors = np.zeros((rows.shape[0], model.factors), np.float32)
        solver.item_factors = initial / stretch
        values = (1 + np.float32(model.confidence)) * rows.data
        solver.fit(csr_matrix((values, rows.indices, rows.indptr), rows.shape), show_progress=False)
    factors = torch.from_numpy(solver.item_factors * stretch)
    return als.Columns.turned(factors, factors.new_ones(len(factors)))
