"""The terms of a run for its nodes: the part of the manager's configuration that decides what work and checks mean.

What a machine gives (its disk, its memory, its tool chains) is that machine's own configuration. Keys and variables of
the manager never travel.
"""

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.app.wiring import Wiring
from fleet.config.machines import stays_here
from fleet.config.schema import Checks, Config, Price, WorkerKind, Worktrees
from fleet.core.base.output import parse_json
from fleet.errors import FleetError
from fleet.ports.nodes import ChecksOrder, Order

ROOM_S = 600.0  # how long an order may wait on a node for others to finish
LONGEST = 8 * 1024 * 1024


class ModelTerms(BaseModel):
    """What a conversation has to know of its models. Where they are, and how they are paid, stays with the manager."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker: str
    max_tokens: int
    retries: int
    compact_at: float
    compact_to: float
    prices: dict[str, Price]


class Terms(BaseModel):
    """What a manager asks a node to keep to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checks: Checks
    worktrees: Worktrees
    workers: dict[str, WorkerKind]
    models: ModelTerms
    sandboxed: bool
    network: bool
    max_file_mb: int
    max_files: int


def patience_s(config: Config, order: Order) -> float:
    """How long nothing may be heard of an order: twice what it may take, and some time until the node has room."""
    if isinstance(order, ChecksOrder):
        work_s = sum(criterion.timeout_s for criterion in order.criteria)
    else:
        work_s = config.workers[order.worker].time_s
    return ROOM_S + 2 * (config.worktrees.setup_timeout_s + work_s)


def terms_of(wiring: Wiring) -> bytes:
    """The terms of this configuration, as they travel."""
    config, models, stays = wiring.config, wiring.config.models, stays_here(wiring.config)
    workers = {
        name: worker.model_copy(update={"prompt": wiring.workers[name].prompt})
        for name, worker in config.workers.items()
        if name not in stays
    }
    terms = Terms(
        checks=config.checks,
        worktrees=config.worktrees,
        workers=workers,
        models=ModelTerms(
            worker=models.worker,
            max_tokens=models.max_tokens,
            retries=models.retries,
            compact_at=models.compact_at,
            compact_to=models.compact_to,
            prices=models.prices,
        ),
        sandboxed=config.box.sandbox != "none",
        network=config.box.network,
        max_file_mb=config.box.max_file_mb,
        max_files=config.box.max_files,
    )
    return terms.model_dump_json().encode()


def under_terms(own: Config, data: bytes) -> Config:
    """This node's configuration under the terms of a manager. Raises `FleetError`."""
    if len(data) > LONGEST:
        raise FleetError(f"terms of {len(data)} bytes; at most {LONGEST} are taken")
    try:
        terms = Terms.model_validate(parse_json(data))
    except (ValueError, ValidationError) as error:
        raise FleetError("the terms of the run can't be read; both sides have to be the same version") from error
    strict = {"sandbox": "bubblewrap"} if terms.sandboxed else {}
    limits = {"max_file_mb": terms.max_file_mb, "max_files": terms.max_files}
    box = own.box.model_copy(update={**strict, **limits, "network": own.box.network and terms.network})
    coder = own.workers["coder"]  # always there, and never ordered from here
    return own.model_copy(
        update={
            "box": box,
            "checks": terms.checks.model_copy(update={"slots": own.checks.slots}),
            "worktrees": terms.worktrees.model_copy(
                update={"lease": own.worktrees.lease, "max_gb": own.worktrees.max_gb, "include": ()}
            ),
            "workers": {"coder": coder, **terms.workers},
            "models": own.models.model_copy(update={"headers": {}, "fallbacks": {}, **dict(terms.models)}),
        }
    )
