"""`fleet nodes check`: a node does one order from its objects to its report, in a box, and forgets it."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from anyio import create_task_group, current_time, fail_after

from fleet import __version__
from fleet.app.nodes.care import UNREACHED, clean_node
from fleet.app.nodes.manager_side import connect
from fleet.app.nodes.terms import terms_of
from fleet.app.wiring import Wiring
from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from fleet.core.views.program_view import Finding
from fleet.errors import FleetError, first_error
from fleet.nodes.connection import Connection
from fleet.nodes.messages import PROTOCOL, Open
from fleet.ports.nodes import ChecksDone, ChecksOrder, NotDone, UnknownOrderError
from worktrees.store.packs import open_node_store, pack_parts
from worktrees.store.store import Store

REPOSITORY = "fleet-probe"
PROBE_S = 120.0  # how long the whole order may take
COMMIT = "tree {tree}\nauthor fleet <fleet@localhost> 0 +0000\ncommitter fleet <fleet@localhost> 0 +0000\n\nA probe.\n"
CRITERION = Criterion(criterion="the probe is there", run='test "$(cat probe)" = fleet', timeout_s=60)
ON_IT = "run `fleet doctor` on that machine, as the user whom the command logs in as"


async def probe_finding(wiring: Wiring, name: str) -> Finding:
    """Whether a node does an order. What is left of it there is deleted."""
    what, began = f"order on {name}", current_time()
    report: object = None
    error: BaseException | None = None
    try:
        with fail_after(PROBE_S):
            report = await _order(wiring, name)
    except* (*UNREACHED, FleetError, UnknownOrderError) as group:
        error = first_error(group)
    if error is not None:
        return Finding(what, ok=False, says=str(error) or f"it took longer than {PROBE_S:g} s", fix=ON_IT)
    finding = _judged(what, report, current_time() - began)
    if finding.ok and wiring.config.worktrees.include:
        return replace(finding, says=f"{finding.says}; files of worktrees.include are not sent there")
    return finding


def _judged(what: str, report: object, seconds: float) -> Finding:
    match report:
        case ChecksDone(runs=(run,)) if run.passed:
            return Finding(what, ok=True, says=f"a check ran in a box there; {seconds:.1f} s with its objects")
        case ChecksDone(runs=(run,)):
            says = f"the check failed with exit code {run.exit_code}: {run.output.strip()[-200:]}"
            return Finding(what, ok=False, says=says, fix=ON_IT)
        case NotDone(failure=failure):
            return Finding(what, ok=False, says=f"{failure.kind}: {failure.summary}", fix=ON_IT)
        case _:
            return Finding(what, ok=False, says="its report is not what was asked for", fix="use another machine")


async def _order(wiring: Wiring, name: str) -> object:
    """The report of one check on a commit that the node never saw."""
    with TemporaryDirectory(prefix="fleet-probe-") as folder:
        async with _probe_store(Path(folder)) as (store, commit):
            run = f"probe-{token_hex(4)}"
            opening = Open(
                protocol=PROTOCOL,
                version=__version__,
                run=run,
                repository=REPOSITORY,
                object_format="sha1",
                base=commit,
                lease_s=PROBE_S,
            )
            settings, terms = wiring.config.nodes[name], terms_of(_bare(wiring))
            async with connect(wiring, name, settings, opening, terms) as connection, create_task_group() as tasks:
                tasks.start_soon(connection.run)
                report = await _done(connection, f"{run}/checks/probe/1", store, commit)
                tasks.cancel_scope.cancel()
    await clean_node(wiring, name, REPOSITORY)
    return report


async def _done(connection: Connection, key: str, store: Store, commit: Sha) -> object:
    if commit not in connection.commits:
        await connection.store(commit, pack_parts(store, commit, ()))
    await connection.start(key, ChecksOrder(commit, (CRITERION,)))
    async with aclosing(connection.follow(key)) as events:
        report = [event async for event in events][-1]
    await connection.acknowledge(key)
    return report


def _bare(wiring: Wiring) -> Wiring:
    """Without the project's gate and set-up, which mean nothing in the probe's repository."""
    checks = wiring.config.checks.model_copy(update={"gate": "", "named": {}})
    worktrees = wiring.config.worktrees.model_copy(update={"setup": "", "include": ()})
    config = wiring.config.model_copy(update={"checks": checks, "worktrees": worktrees})
    return Wiring(config, wiring.environ)


@asynccontextmanager
async def _probe_store(folder: Path) -> AsyncIterator[tuple[Store, Sha]]:
    """A store with one commit, the same each time."""
    store = await open_node_store(folder, REPOSITORY, "sha1")
    try:
        git = store.git
        blob = (await git("hash-object", "-w", "--stdin", data=b"fleet\n")).decode().strip()
        tree = (await git("mktree", data=f"100644 blob {blob}\tprobe\n".encode())).decode().strip()
        data = COMMIT.format(tree=tree).encode()
        yield store, (await git("hash-object", "-t", "commit", "-w", "--stdin", data=data)).decode().strip()
    finally:
        await store.close()
