"""The terms of a run for its nodes: the part of the manager's configuration that decides what work and checks mean.

What a machine gives (its disk, its memory, its tool chains) is that machine's own configuration. Keys and variables of
the manager never travel.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from fleet.app.wiring import Wiring
from fleet.config.schema import Config, stays_here
from fleet.core.base.output import parse_json
from fleet.errors import FleetError
from fleet.ports.orders import ChecksOrder, Order
from fleet.ports.settings import Checks, Models, WorkerSection, Worktrees
from worktrees.store.store import try_lock

ROOM_S = 600.0  # how long an order may wait on a node for others to finish
LONGEST = 8 * 1024 * 1024
OF_MODELS = frozenset({"worker", "max_tokens", "retries", "compact_at", "compact_to", "prices"})
"""The keys of `[models]` that conversations need. Where models are, and how they are paid, stays with the manager."""


class Terms(BaseModel):
    """What a manager asks a node to keep to."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    checks: Checks
    worktrees: Worktrees
    workers: dict[str, WorkerSection]
    models: dict[str, Any]
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
    config, stays = wiring.config, stays_here(wiring.config)
    workers = {
        name: worker.model_copy(update={"prompt": wiring.workers[name].prompt})
        for name, worker in config.workers.items()
        if name not in stays
    }
    terms = Terms(
        checks=config.checks,
        worktrees=config.worktrees,
        workers=workers,
        models=config.models.model_dump(include=set(OF_MODELS)),
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
        taken = {name: terms.models[name] for name in OF_MODELS}
        models = Models.model_validate({**dict(own.models), "headers": {}, "fallbacks": {}, **taken})
    except (KeyError, ValueError) as error:
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
            "models": models,
        }
    )


# ---- scratch ---------------------------------------------------------------------------------------------------------
# Temporary files of a node's process, and of a run's nodes. What a killed process left is removed by the next.


FOLDERS = "node/temporary"
LOCK, NEW = "lock", "new"


@contextmanager
def scratch_folder(state_dir: Path) -> Iterator[Path]:
    """A folder that all temporary files of this process are made in, until the block ends."""
    folder = state_dir / FOLDERS
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_left(folder)
    before = tempfile.tempdir
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        with try_lock(own / NEW):
            (own / NEW).rename(own / LOCK)  # with this name it is locked
            tempfile.tempdir = str(own)
            yield own
    finally:
        tempfile.tempdir = before
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def run_folder_of_nodes(run: Path) -> Iterator[Path]:
    """A folder for what a run's engine, which is the only one, shares with its nodes' programs.

    Its path is short, as sockets need it, and the same in each life of the run.
    """
    name = sha256(os.fsencode(run.resolve())).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"fleet-nodes-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # someone else's
        folder = Path(tempfile.mkdtemp(prefix="fleet-nodes-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove the folders of processes that are gone."""
    for path in folder.iterdir():
        if not (path / LOCK).exists():  # it is being made, or was killed then: the folder is empty
            continue
        with try_lock(path / LOCK) as is_left:
            if is_left:
                shutil.rmtree(path, ignore_errors=True)
