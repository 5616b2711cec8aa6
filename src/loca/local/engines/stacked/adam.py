"""Adam for stacked networks, each of which has taken steps of its own."""

from __future__ import annotations

from torch import Tensor
from torch.optim.adam import adam

from loca.local.engines.stacked.adam_state import AdamState, Gradient, RowsGradient
from loca.local.engines.stacked.dispatch import kernels_on
from loca.models.training import AutoencoderModel

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class AdamStep:
    """One step of Adam for networks that have taken `steps` before it, (networks,) on the device.

    All that it needs is allocated when it is made: `apply` takes no memory that could be missing.
    """

    def __init__(self, model: AutoencoderModel, steps: Tensor) -> None:
        self._learning_rate = model.learning_rate
        self._weight_decay = model.weight_decay
        taken = (steps + 1).double()
        self._rates = (model.learning_rate / (1 - _BETAS[0] ** taken)).float()
        self._roots = (1 - _BETAS[1] ** taken).rsqrt().float()
        self._steps = steps.float()
        self._counted_steps = self._steps.clone()  # plain torch counts in it

    def apply(self, state: AdamState, gradient: Gradient) -> None:
        """Change weights and averages by a gradient.

        More rows in a gradient than the weights have are padding.
        """
        kernels = kernels_on(state.weights.device)
        if kernels is not None:
            settings = (self._rates, self._roots, self._weight_decay, _BETAS, _EPSILON)
            if isinstance(gradient, RowsGradient):
                kernels.adam_rows_(state, gradient, *settings)
                return
            if gradient[0].is_contiguous():
                kernels.adam_dense_(state, gradient, *settings)
                return
        assert isinstance(gradient, Tensor)
        self._apply_plainly(state, gradient)

    def _apply_plainly(self, state: AdamState, gradient: Tensor) -> None:
        n_rows = state.weights.shape[1]
        self._counted_steps.copy_(self._steps)
        adam(
            list(state.weights.unbind()),
            list(gradient[:, :n_rows].unbind()),
            list(state.exp_avg.unbind()),
            list(state.exp_avg_sq.unbind()),
            [],
            list(self._counted_steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=_EPSILON,
            maximize=False,
        )
