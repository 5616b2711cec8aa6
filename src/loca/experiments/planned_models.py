"""What the fit of any model consists of, one part after the other: local models, blends and searches too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from loca.communities.communities import check_anchor_count
from loca.communities.coverage import bytes_of_bits, bytes_on_device
from loca.communities.embeddings import Embedder, TruncatedSVD
from loca.communities.geometry import Quantile
from loca.errors import ConfigError
from loca.evaluation.top_n import block_rows
from loca.experiments.calibration import seconds_to_choose_anchors, seconds_to_cover, seconds_to_embed, seconds_to_weigh
from loca.experiments.fit_plan import Part, Taken, sum_known
from loca.experiments.planned_parts import plan_local, plan_model
from loca.experiments.planned_setting import Planned, Setting
from loca.local.auto import COMMUNITIES, LESSONS, MOST_MEMBERS, Auto
from loca.local.blend import CACHE_BYTES, POWERS, Blend
from loca.local.blend_search import DEPTH
from loca.local.ensemble import Ensemble
from loca.local.loca import ALPHAS, DISTINCTIVE_ITEMS, Loca
from loca.local.local_ease import ItemToItem, is_centre_for
from loca.local.training import Engine, keeps_differences
from loca.models.cdae import CDAE
from loca.models.devices import choose_device
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender, get_params
from loca.models.wmf import WMF

# Of the pairs of a user and a community that answers: weight and number, and once more the other way round.
_BYTES_PER_ANSWER_WEIGHT = 16
# How often the search for weights judges one, for each of its columns; where the columns are given, each is left out.
_WEIGHTINGS_PER_COLUMN = 16
_WEIGHTINGS_OF_A_GIVEN_COLUMN = 2
# Users × items beside those of the columns, while the best of each are found.
_ARRAYS_WHILE_ASKING = 6
_AUTO_ADVICE = "filter rare items, or fit one model by its name"


def plan_parts(setting: Setting, model: Recommender) -> list[Planned]:
    """What is fitted, one after the other."""
    if isinstance(model, Auto):
        weighed = replace(setting, weighed=True)
        return _plan_auto(weighed, model) if model.chosen is None else plan_parts(weighed, model.chosen)
    if isinstance(model, Blend):
        return _plan_blend(setting, model)
    if isinstance(model, Loca):
        return _plan_loca(setting, model)
    if isinstance(model, Ensemble):
        engine = Engine(model.engine, model.precision, model.answer_precision, model.local_bytes)
        centre = _plan_centre(setting, model.base, engine, None)
        rest, name, count = _after_all(setting, centre), "ensemble members", model.models
        bootstrapped = "seed" not in get_params(model.base)
        return [*centre, plan_local(rest, model.base, count, engine, count, name, weighted=bootstrapped)]
    return [plan_model(setting, model, "model")]


def _plan_loca(setting: Setting, model: Loca) -> list[Planned]:
    check_anchor_count(model.anchors, setting.users)
    global_model = model.base if model.global_model is None else model.global_model
    planned = [plan_model(setting, global_model, "global model")]
    if model.embedding is not None or not isinstance(global_model, Embedder):
        embedding = TruncatedSVD(seed=model.seed) if model.embedding is None else model.embedding
        planned.append(_plan_embedding(_after_all(setting, planned), embedding))
    else:
        embedding = global_model
    planned.append(_plan_communities(_after_all(setting, planned), model, _dimensions(setting, embedding)))
    engine = Engine(model.engine, model.precision, model.answer_precision, model.local_bytes)
    planned += _plan_centre(_after_all(setting, planned), model.base, engine, global_model)
    asked = model.anchors * _share_that_answers(model)
    local = plan_local(_after_all(setting, planned), model.base, model.anchors, engine, asked, "local models")
    if model.alpha == "validation" and local.judging is not None and setting.rank is not None:
        once_more = len(ALPHAS) * setting.users * setting.rank + (local.judging if local.epochs is None else 0)
        local = replace(local, judging=local.judging + once_more)
    return [*planned, local]


def _plan_centre(setting: Setting, base: Recommender, engine: Engine, global_model: Any) -> list[Planned]:
    """The model that local ones are differences to, where the global model is not that one."""
    if not isinstance(base, ItemToItem) or not keeps_differences(engine, setting.items):
        return []
    return [] if is_centre_for(base, global_model) else [plan_model(setting, base, "centre of local models")]


def _plan_blend(setting: Setting, model: Blend) -> list[Planned]:
    """Every part that is fitted, what stays of it beside the next, and the search for weights at the end."""
    given = model.columns
    planned: list[Planned] = []
    scorings: dict[int, float | None] = {}
    for number in range(len(model.parts)) if given is None else sorted({part for part, _, _ in given}):
        own = plan_parts(_after_all(setting, planned), model.parts[number])
        scorings[number] = sum_known(one.scoring for one in own)
        name = model.part_names()[number]
        # Their answers are judged together, by the search.
        planned += [
            replace(one, part=replace(one.part, name=f"{name}: {one.part.name}" if len(own) > 1 else name), scoring=0.0)
            for one in own
        ]
    powers = len(model.powers) if setting.weighed else 1
    asked = list(scorings.values()) * powers if given is None else [scorings[part] for part, _, _ in given]
    weightings = len(asked) * (_WEIGHTINGS_PER_COLUMN if given is None else _WEIGHTINGS_OF_A_GIVEN_COLUMN)
    kept = len(scorings) if given is None else len(asked)
    return [*planned, _plan_search(_after_all(setting, planned), asked, kept, model.cache_bytes, weightings)]


def _plan_search(
    setting: Setting, scorings: Sequence[float | None], kept: int, cache_bytes: int, weightings: int
) -> Planned:
    """Every column's scores of the candidates of as many users as the cache holds, and weightings of them.

    The blend that is found answers with about as many columns as are `kept`: one for each part. The scores lie where
    the parts answer; on a machine with a GPU that may be either place.
    """
    columns, device = len(scorings), torch.device(setting.machine.device)
    candidates = min(setting.items, columns * DEPTH)
    of_a_user = 4 * candidates * (columns + 1)
    users = min(setting.users, max(1, cache_bytes // of_a_user))
    arrays = columns + _ARRAYS_WHILE_ASKING
    asking = 4 * arrays * min(block_rows(setting.items, arrays=arrays), setting.users) * setting.items
    needed = users * of_a_user + max(asking, 2 * 4 * users * candidates)
    scoring, asked = sum_known(scorings[:kept]), sum_known(setting.judged(one) for one in scorings)
    seconds = None
    if asked is not None and setting.may_time(device, needed):
        seconds = asked + weightings * users * seconds_to_weigh(candidates, device)
    part = Part(
        "weights of the blend",
        on_device=Taken(needed) if device.type == "cuda" else Taken(),
        in_memory=Taken(needed),
        seconds=seconds,
        judges=True,
        advice="take a smaller cache_bytes",
    )
    return Planned(part, setting.judged(scoring), scoring)


def _plan_auto(setting: Setting, model: Auto) -> list[Planned]:
    """Its budget is its time; what stays is the best of each kind, beside which the next one is fitted."""
    on = model.device
    kinds = {
        "EASE": EASE(device=on),
        "NextEASE": NextEASE(device=on),
        "NextEASE, next items alone": NextEASE(ordinary=0.0, device=on),
    }
    network = MultVAE(epochs=200, device=on)
    planned = [Planned(Part("trials within the budget", seconds=model.seconds))]
    scorings: list[float | None] = []
    timed: dict[type, float | None] = {}

    def add(one: Planned, kind: type, held: Taken) -> None:
        """One row of the plan without a time of its own; models of one kind answer at one pace."""
        scorings.append(timed.setdefault(kind, one.scoring))
        in_memory = Taken(one.part.in_memory.at_work + held.stays, one.part.in_memory.stays)
        part = replace(one.part, in_memory=in_memory, seconds=0.0, advice=_AUTO_ADVICE)
        planned.append(replace(one, part=part, judging=0.0, scoring=0.0))

    for name, start in kinds.items():
        here = _after_all(setting, planned)
        one = plan_model(here if type(start) not in timed else here.untimed(), start, name)
        add(one, type(start), one.part.in_memory)  # the best so far, while the next is solved
    here = _after_all(setting, planned)
    add(plan_local(here, EASE(device=on), COMMUNITIES, Engine("auto"), COMMUNITIES, "local EASEs"), Loca, Taken())
    for name in LESSONS:
        here = _after_all(setting, planned)
        here = here if Ensemble not in timed else here.untimed()
        one = plan_local(here, network, MOST_MEMBERS, Engine("auto"), MOST_MEMBERS, f"networks of {name}")
        add(one if Ensemble not in timed else replace(one, stack=None), Ensemble, Taken())
    asked = scorings * len(POWERS)
    weightings = _WEIGHTINGS_PER_COLUMN * len(asked)
    search = _plan_search(_after_all(setting, planned), asked, len(scorings), CACHE_BYTES, weightings)
    return [*planned, replace(search, part=replace(search.part, advice=_AUTO_ADVICE))]


def _plan_embedding(setting: Setting, embedding: Any) -> Planned:
    if not isinstance(embedding, TruncatedSVD):
        return plan_model(setting, embedding, "embedding")
    directions = 4 * setting.items * _dimensions(setting, embedding)
    projections = 4 * setting.users * _dimensions(setting, embedding)
    seconds = None if setting.rank is None else seconds_to_embed(embedding, setting.matrix)
    # Factors of the sampled range, their decomposition and the scaled rows stand beside each other.
    at_work = 4 * (directions + projections) + 2 * 8 * setting.stored
    return Planned(Part("embedding", in_memory=Taken(at_work, directions), in_folder=directions, seconds=seconds))


def _plan_communities(setting: Setting, model: Loca, dimensions: int) -> Planned:
    """Anchors and the weights of those whom they answer for; embeddings and weights stay until the fit ends."""
    users, anchors = setting.users, model.anchors
    embeddings = 4 * users * dimensions
    stays = embeddings + _BYTES_PER_ANSWER_WEIGHT * math.ceil(users * anchors * _share_that_answers(model))
    on_device, bits, seconds = 0, 0, None
    if model.anchor_selection == "coverage":
        device = choose_device(get_params(model.base).get("device", "auto"))
        needed = bytes_on_device(users, dimensions)
        if device.type == "cuda" and needed <= setting.free_on(device):
            on_device = needed
        else:
            device, bits = torch.device("cpu"), bytes_of_bits(users)
        if setting.rank is not None:
            seconds = seconds_to_cover(users, dimensions, anchors, model.answer_bandwidth, device)
    elif setting.rank is not None:
        seconds = seconds_to_choose_anchors(users, dimensions, anchors, model.anchor_selection)
    numbers = 2 + min(DISTINCTIVE_ITEMS, setting.items)  # of 64 bits: anchor, members, distinctive items and lifts
    part = Part(
        "communities",
        on_device=Taken(on_device),
        in_memory=Taken(bits + 3 * embeddings + stays, stays),
        in_folder=anchors * (8 * numbers + 4 * dimensions),
        seconds=seconds,
        advice="use anchor_selection 'kmeans', 'farthest' or 'random'",
    )
    return Planned(part)


def _after_all(setting: Setting, planned: Sequence[Planned]) -> Setting:
    for one in planned:
        setting = setting.after(one.part)
    return setting


def _dimensions(setting: Setting, embedding: Any) -> int:
    """How many numbers embed a user."""
    if isinstance(embedding, TruncatedSVD):
        return min(embedding.dimensions, *setting.matrix.shape)
    if isinstance(embedding, MultVAE | MultDAE | CDAE | RecVAE):
        return embedding.latent
    if isinstance(embedding, WMF):
        return embedding.factors
    raise ConfigError(
        "embedding: expected svd, mult-vae, mult-dae, cdae, rec-vae or wmf, found "
        f"{type(embedding).__name__}; no plan is known for that"
    )


def _share_that_answers(model: Loca) -> float:
    """Which share of the communities answers for a user: known for a quantile of the distances, else at most all."""
    bandwidth = model.answer_bandwidth
    return bandwidth.level if isinstance(bandwidth, Quantile) and bandwidth.times <= 1 else 1.0
