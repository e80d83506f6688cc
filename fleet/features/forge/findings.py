"""What the doctor finds about forges."""

from collections.abc import AsyncIterator, Mapping

from anyio import create_task_group

from fleet.app.fleet import Fleet
from fleet.core.base.forges import FORGES, ForgeKind
from fleet.features.forge.forge import Place
from fleet.features.forge.program import ForgeError, Program, ProgramMissingError
from fleet.read.base_view import Finding

LOOK_S = 10.0
ANY = "any/any"  # no repository is asked for


async def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Whether `gh` and `glab` are there and logged in. No run needs them."""
    for finding in await forge_findings(fleet.environ):
        yield finding


async def forge_findings(environ: Mapping[str, str]) -> list[Finding]:
    """One for each forge; none of them is a failure."""
    found: dict[str, Finding] = {}

    async def look(kind: ForgeKind) -> None:
        found[kind.name] = await _finding(Place(kind, kind.host, ANY), environ)

    async with create_task_group() as tasks:
        for kind in FORGES:
            tasks.start_soon(look, kind)
    return [found[kind.name] for kind in FORGES]


async def _finding(place: Place, environ: Mapping[str, str]) -> Finding:
    name = place.kind.program
    try:
        status = await Program(place, environ).finish(("auth", "status"), timeout_s=LOOK_S)
    except ProgramMissingError as missing:
        return Finding(name, ok=True, says="not installed: `fleet pr` and issues as epics need it", fix=missing.hint)
    except ForgeError as error:
        return Finding(name, ok=True, says=error.message, fix=error.hint)
    if status.timed_out:
        return Finding(
            name, ok=True, says=f"installed; it did not answer within {LOOK_S:g} s", fix=f"{name} auth status"
        )
    if status.exit_code != 0:
        return Finding(name, ok=True, says="not logged in", fix=f"{name} auth login")
    return Finding(name, ok=True, says="logged in: issues and pull requests can be reached")
