"""The terms of a run for its nodes: the part of the manager's configuration that work and checks depend on.

A node's resources (disk, memory, tool chains) are set in its own configuration. API keys and environment variables of
the manager are never sent.
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
from fleet.ports.settings import ChecksSection, Models, WorkerSection, WorktreesSection
from worktrees.store.store import try_lock

ROOM_S = 600.0  # how long an order may wait on a node for other orders
LONGEST = 8 * 1024 * 1024
OF_MODELS = frozenset({"worker", "max_tokens", "retries", "compact_at", "compact_to", "prices"})
"""The keys of `[models]` that conversations need. Endpoints and payment stay with the manager."""


class NodeConfig(BaseModel):
    """The settings that a manager sends to a node."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    checks: ChecksSection
    worktrees: WorktreesSection
    workers: dict[str, WorkerSection]
    models: dict[str, Any]
    sandboxed: bool
    network: bool
    max_file_mb: int
    max_files: int


def patience_s(config: Config, order: Order) -> float:
    """Return how long an order may be silent: twice its time limit, plus time to wait for a slot on the node."""
    if isinstance(order, ChecksOrder):
        work_s = sum(criterion.timeout_s for criterion in order.criteria)
    else:
        work_s = config.workers[order.worker].time_s
    return ROOM_S + 2 * (config.worktrees.setup_timeout_s + work_s)


def build_node_config(wiring: Wiring) -> bytes:
    """Encode the terms of this configuration."""
    config, stays = wiring.config, stays_here(wiring.config)
    workers = {
        name: worker.model_copy(update={"prompt": wiring.workers[name].prompt})
        for name, worker in config.workers.items()
        if name not in stays
    }
    terms = NodeConfig(
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
    """Apply the terms of a manager to this node's configuration. Raises `FleetError`."""
    if len(data) > LONGEST:
        raise FleetError(f"the terms of the run have {len(data)} bytes, but the limit is {LONGEST}")
    try:
        terms = NodeConfig.model_validate(parse_json(data))
        taken = {name: terms.models[name] for name in OF_MODELS}
        models = Models.model_validate({**dict(own.models), "headers": {}, "fallbacks": {}, **taken})
    except (KeyError, ValueError) as error:
        raise FleetError(
            "can't parse the terms of the run", hint="install the same version of fleet on both machines"
        ) from error
    strict = {"sandbox": "bubblewrap"} if terms.sandboxed else {}
    limits = {"max_file_mb": terms.max_file_mb, "max_files": terms.max_files}
    box = own.box.model_copy(update={**strict, **limits, "network": own.box.network and terms.network})
    coder = own.workers["coder"]  # always configured, but never used on a node
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
# Temporary files of a node's process, and of a run's nodes. The next process removes the files of killed ones.


FOLDERS = "node/temporary"
LOCK, NEW = "lock", "new"


@contextmanager
def scratch_folder(state_dir: Path) -> Iterator[Path]:
    """Create a folder for all temporary files of this process during the block."""
    folder = state_dir / FOLDERS
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_left(folder)
    before = tempfile.tempdir
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        with try_lock(own / NEW):
            (own / NEW).rename(own / LOCK)  # from here on, it counts as locked
            tempfile.tempdir = str(own)
            yield own
    finally:
        tempfile.tempdir = before
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def run_folder_of_nodes(run: Path) -> Iterator[Path]:
    """Create a folder that a run's engine shares with its nodes' programs. Only one engine runs at a time.

    Its path is short enough for sockets, and stays the same when the run is resumed.
    """
    name = sha256(os.fsencode(run.resolve())).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"fleet-nodes-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # another user owns it
        folder = Path(tempfile.mkdtemp(prefix="fleet-nodes-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove the folders of processes that are gone."""
    for path in folder.iterdir():
        if not (path / LOCK).exists():  # its process is starting or was killed at that point, so the folder is empty
            continue
        with try_lock(path / LOCK) as is_left:
            if is_left:
                shutil.rmtree(path, ignore_errors=True)
