"""What a study tries next: the template first, then every point of a grid, or points that optuna's sampler proposes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loca.experiments.spaces import Point
from loca.experiments.studies import TEMPLATE, import_optuna, is_stopped
from loca.experiments.trials import TrialTask
from loca.random_streams import derive_seed, stream

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

_RANDOM_TRIALS = 8
# Grids beyond this are searched as endless spaces are.
_LARGEST_GRID = 10_000


class Proposals:
    """The trials of a study in their order, which the seed and the outcomes so far say.

    Each proposal has a sampler of its own, seeded by its place: a run that goes on proposes what an unbroken one does.
    """

    def __init__(self, study: Study, task: TrialTask, seed: int) -> None:
        self.study = study
        self.space = task.space
        self.seed = seed
        self.template_point = task.space.coordinates(task.template)
        self.is_grid = task.space.size is not None and task.space.size <= _LARGEST_GRID

    def next(self) -> Trial | None:
        """The next trial, with its point drawn; None where every point of a grid was tried."""
        tried = [one for one in self.study.get_trials(deepcopy=False) if not is_stopped(one)]
        if not any(one.user_attrs.get(TEMPLATE) for one in tried):
            return self._try_template()
        if self.is_grid:
            return self._next_on_grid(tried)
        return self._proposed(len(tried))

    def _try_template(self) -> Trial:
        trial = self.study.ask() if self.template_point is None else self._at(self.template_point)
        trial.set_user_attr(TEMPLATE, True)
        return trial

    def _next_on_grid(self, tried: list[FrozenTrial]) -> Trial | None:
        points = list(self.space.points())
        taken = [one.params for one in tried if self.template_point is not None or not one.user_attrs.get(TEMPLATE)]
        order = stream(self.seed, "grid", self.study.study_name).permutation(len(points))
        point = next((points[place] for place in order if points[place] not in taken), None)
        return None if point is None else self._at(point)

    def _at(self, point: Point) -> Trial:
        optuna = import_optuna()
        # Not enqueued: what a kill leaves in the queue would come up again out of its turn.
        self.study.sampler = optuna.samplers.PartialFixedSampler(dict(point), optuna.samplers.RandomSampler(seed=0))
        trial = self.study.ask()
        self.space.draw(trial)
        return trial

    def _proposed(self, place: int) -> Trial:
        optuna = import_optuna()
        self.study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=_RANDOM_TRIALS,
            seed=derive_seed(self.seed, "sampler", self.study.study_name, place) % 2**32,
            # A template outside the space has no point: without groups it would keep all others from being compared.
            group=self.template_point is None,
            multivariate=True,
            constant_liar=True,
        )
        trial = self.study.ask()
        self.space.draw(trial)
        return trial
