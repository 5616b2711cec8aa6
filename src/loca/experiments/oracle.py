"""The upper bound on planted data: one base model per true community, blended by each user's true memberships."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from loca.data.held_out import HeldOut, Split
from loca.data.interactions import Interactions
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, DataError
from loca.local.one_by_one import scaled_weights
from loca.models.recommender import Recommender, Scores, clone
from loca.ranking.evaluation import Evaluation, measure, summarise

UserRows = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]


def evaluate_true_communities(
    candidates: Sequence[Recommender],
    planted: PlantedData,
    split: Split,
    *,
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Evaluation:
    """What a model would reach that knows who belongs where, under the clean protocol.

    The base is chosen from `candidates` on validation, refitted on train + validation, and measured on test once.
    No model that has to find the communities itself is expected to do better.
    """
    if split.validation is None or not candidates:
        raise ConfigError("the upper bound needs candidates, and a validation part to choose one on")
    scores = [_validate(base, planted, split.train, split.validation) for base in candidates]
    best = candidates[int(np.argmax(scores))]
    answer = _answers(best, planted, split.train_and_validation, split.test)
    return summarise(measure(answer, split.test, at=at), split.test, seed=seed)


def _validate(base: Recommender, planted: PlantedData, train: Interactions, questions: HeldOut) -> float:
    measured = measure(_answers(base, planted, train, questions), questions, at=(100,))
    return float(measured.values["ndcg@100"].mean())


def _answers(
    base: Recommender, planted: PlantedData, train: Interactions, questions: HeldOut
) -> Callable[[UserRows], Scores]:
    """Scores for user rows of `questions`, from one model per community fitted with the true shares as weights."""
    learners = _shares_of(planted, train)
    models = [
        clone(base).fit(train, user_weights=scaled_weights(shares.astype(np.float32), len(learners)))
        for shares in learners.T
    ]
    asked = _shares_of(planted, questions.histories).astype(np.float32)  # (users, communities)

    def score_users(user_rows: UserRows) -> Scores:
        histories = questions.history_matrix[user_rows]
        blended = np.zeros(histories.shape, dtype=np.float32)
        for community, model in enumerate(models):
            blended += asked[user_rows, community][:, None] * model.score(histories)
        return blended

    return score_users


def _shares_of(planted: PlantedData, interactions: Interactions) -> Shares:
    """The true shares of these users in the communities, users × communities."""
    if len(planted.memberships) != planted.interactions.n_users:
        raise DataError("planted data: expected the memberships of every user")
    rows = planted.interactions.users.rows(interactions.users.values.tolist())
    return np.asarray(planted.memberships[rows])
