"""MultVAE and MultDAE (Liang et al. 2018): autoencoders of histories with a multinomial likelihood."""

from __future__ import annotations

from dataclasses import dataclass

from loca.models.devices import device_param
from loca.models.recommender import not_negative, positive, share, share_below_1, whole
from loca.models.training import AutoencoderModel, TargetName, decay_param


@dataclass(kw_only=True, eq=False, repr=False)
class MultVAE(AutoencoderModel):
    """Encodes a history as a Gaussian and decodes it into a score for every item.

    LOCA's authors' program is `MultVAE(hidden=None, dropout=0.2, noise=0.01, kl_weight=0.0)`.

    Parameters
    ----------
    latent : int
        Size of the code.
    hidden : int, optional
        Size of a layer between items and code, on either side; None puts no layer there.
    dropout : float
        Share of a history that is dropped in training.
    noise : float
        Scale of the random part of the code.
    kl_weight, anneal_steps : float, int
        The KL term grows to `kl_weight` over `anneal_steps` steps.
    learning_rate, weight_decay, batch_size : float, float, int
        Of Adam, and users in a step.
    target, next_count, prefix_decay, set_share : str, int, float, float
        `"set"` learns from whole histories. `"next"` learns from their order: a random prefix, decayed by
        `prefix_decay` a position, predicts the `next_count` items after it (`"following"`: all of them), while
        `set_share` of the users are sets all the same.
    epochs, patience, evaluate_every : int
        At most so many epochs, and no more than `patience` without a better validation score, which is computed
        every `evaluate_every` epochs. Without validation all epochs are run.
    seed : int
        Of the initial weights, the order of users, dropout and noise.
    device : str
        `"auto"`, `"cpu"` or `"cuda"`.
    """

    variational = True

    latent: int = whole(200)
    hidden: int | None = whole(None, optional=True)
    dropout: float = share_below_1(0.5)
    noise: float = not_negative(1.0)
    kl_weight: float = not_negative(0.2)
    anneal_steps: int = not_negative(20_000)
    learning_rate: float = positive(1e-3)
    weight_decay: float = not_negative(0.0)
    batch_size: int = whole(512)
    target: TargetName = "set"
    next_count: int = whole(10)
    prefix_decay: float = decay_param()
    set_share: float = share(0.0)
    epochs: int = whole(200)
    patience: int = whole(20)
    evaluate_every: int = whole(1)
    seed: int = 0
    device: str = device_param()


@dataclass(kw_only=True, eq=False, repr=False)
class MultDAE(AutoencoderModel):
    """Drops part of a history, encodes the rest and decodes it into a score for every item.

    Its parameters are those of `MultVAE` without `noise`, `kl_weight` and `anneal_steps`: its code is not random.
    """

    variational = False

    latent: int = whole(200)
    hidden: int | None = whole(None, optional=True)
    dropout: float = share_below_1(0.5)
    learning_rate: float = positive(1e-3)
    weight_decay: float = not_negative(0.0)
    batch_size: int = whole(512)
    target: TargetName = "set"
    next_count: int = whole(10)
    prefix_decay: float = decay_param()
    set_share: float = share(0.0)
    epochs: int = whole(200)
    patience: int = whole(20)
    evaluate_every: int = whole(1)
    seed: int = 0
    device: str = device_param()
