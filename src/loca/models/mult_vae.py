"""MultVAE and MultDAE (Liang et al. 2018): autoencoders of histories with a multinomial likelihood."""

from __future__ import annotations

from dataclasses import dataclass, field

from loca.models.training import AutoencoderModel


@dataclass(kw_only=True, eq=False, repr=False)
class MultVAE(AutoencoderModel):
    """Encode a history as a Gaussian and decode it into a score for every item.

    The loss of a user is the negative multinomial log-likelihood of the history, and the KL divergence of the Gaussian
    from a standard normal, weighted. LOCA's authors' program is
    `MultVAE(hidden=None, dropout=0.2, noise=0.01, kl_weight=0.0)`.

    Parameters
    ----------
    latent : int, default 200
        Size of the code.
    hidden : int or None, default None
        Size of a layer between items and code, on either side; None puts no layer there.
    dropout : float, default 0.5
        Share of a history that is dropped in training.
    noise : float, default 1.0
        Scale of the random part of the code.
    kl_weight : float, default 0.2
        Weight of the KL term once it has grown.
    anneal_steps : int, default 20000
        Steps in which the KL term grows from 0 to `kl_weight`; 0 starts with all of it.
    learning_rate : float, default 1e-3
        Step size of Adam.
    weight_decay : float, default 0.0
        Weight decay of Adam, for all weights.
    batch_size : int, default 512
        Users in a step.
    target : {"set", "next", "following"}, default "set"
        What of a history predicts what. `"set"` learns from whole histories, in any order. `"next"` learns from their
        order: a random prefix predicts the `next_count` items after it; with `"following"` it predicts all of them.
    next_count : int, default 10
        Items after a prefix that `target="next"` predicts.
    prefix_decay : float, default 0.9
        Weight of an item in a prefix relative to the item after it; the newest counts 1.
    set_share : float, default 0.0
        Share of the users that are whole sets all the same where `target` is not `"set"`, drawn anew in every epoch.
    epochs : int, default 200
        The most epochs to train.
    patience : int, default 20
        Stop after so many epochs without a better validation score. Without validation data all epochs are run.
    evaluate_every : int, default 1
        Epochs from one validation score to the next.
    seed : int, default 0
        Seed of the initial weights, the order of users, dropout, noise and prefixes.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.MultVAE(latent=8, epochs=2).fit(data)
    >>> model.score(data.histories()).shape
    (60, 30)
    >>> model.embed(data.histories()).shape
    (60, 8)
    """

    variational = True


@dataclass(kw_only=True, eq=False, repr=False)
class MultDAE(AutoencoderModel):
    """Drop part of a history, encode the rest and decode it into a score for every item.

    The loss of a user is the negative multinomial log-likelihood of the whole history. Unlike that of `MultVAE`, the
    code is not random.

    Parameters
    ----------
    latent : int, default 200
        Size of the code.
    hidden : int or None, default None
        Size of a layer between items and code, on either side; None puts no layer there.
    dropout : float, default 0.5
        Share of a history that is dropped in training.
    learning_rate : float, default 1e-3
        Step size of Adam.
    weight_decay : float, default 0.0
        Weight decay of Adam, for all weights.
    batch_size : int, default 512
        Users in a step.
    target : {"set", "next", "following"}, default "set"
        What of a history predicts what. `"set"` learns from whole histories, in any order. `"next"` learns from their
        order: a random prefix predicts the `next_count` items after it; with `"following"` it predicts all of them.
    next_count : int, default 10
        Items after a prefix that `target="next"` predicts.
    prefix_decay : float, default 0.9
        Weight of an item in a prefix relative to the item after it; the newest counts 1.
    set_share : float, default 0.0
        Share of the users that are whole sets all the same where `target` is not `"set"`, drawn anew in every epoch.
    epochs : int, default 200
        The most epochs to train.
    patience : int, default 20
        Stop after so many epochs without a better validation score. Without validation data all epochs are run.
    evaluate_every : int, default 1
        Epochs from one validation score to the next.
    seed : int, default 0
        Seed of the initial weights, the order of users, dropout and prefixes.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.MultDAE(latent=8, target="next", next_count=3, epochs=2).fit(data)
    >>> model.uses_order
    True
    >>> model.score(data.histories()).shape
    (60, 30)
    """

    variational = False

    noise: float = field(default=0.0, init=False)
    kl_weight: float = field(default=0.0, init=False)
    anneal_steps: int = field(default=0, init=False)
