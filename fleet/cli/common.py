"""What the verbs share: options, reading the configuration, finding the run, printing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fleet.errors import FleetError, UsageError

if TYPE_CHECKING:
    from fleet.config import Loaded
    from fleet.core.plan import Subtask
    from fleet.core.state import RunState
    from fleet.folders import RunFolder
    from fleet.settings import State

Result = TypeVar("Result")

RunName = Annotated[str | None, typer.Option("--run", help="The run; the latest of this repository by default.")]
RunArgument = Annotated[str | None, typer.Argument(help="The run; the latest of this repository by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="For scripts.")]
Repo = Annotated[Path, typer.Option("--repo", help="The repository; the one you are in by default.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Another configuration file.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="A service that speaks the Messages API.")]
Sandbox = Annotated[str | None, typer.Option("--sandbox", help="bubblewrap, or none: commands then run as you.")]
Metrics = Annotated[str | None, typer.Option("--metrics", help="Serve figures for Prometheus at HOST:PORT.")]
HERE = Path()


def root_of(path: Path) -> Path | None:
    """The root of the repository that `path` is in, without asking git."""
    here = path.absolute()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def configuration(
    repository: Path | None = None, config_file: Path | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    from fleet.config import load_config

    root = root_of(repository or HERE)
    return load_config(environ=os.environ, flags=flags or {}, config_file=config_file, repository=root)


def state_settings() -> State:
    """Where runs are kept, and how much of them. A repository's own file has no say: it must not hide a run."""
    from fleet.config import load_config

    return load_config(environ=os.environ, repository=None).config.state


def state_dir() -> Path:
    return Path(state_settings().dir)


def the_run(name: str | None) -> RunFolder:
    from fleet.folders import find_run

    root = root_of(HERE)
    return find_run(state_dir(), name, root.resolve() if root else None)


def the_subtask(state: RunState, id_: str) -> Subtask:
    from fleet.core.nearest import did_you_mean

    spec = state.plan.subtask(id_)
    if spec is None:
        near = did_you_mean(id_, state.plan.ids) or f"; there are {', '.join(state.plan.ids) or 'none yet'}"
        raise UsageError(f"{state.run} has no subtask {id_!r}{near}")
    return spec


def show(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def show_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def run_async(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run to the end. What the operator can mend comes out as a `FleetError`, whatever group it was wrapped in."""
    import anyio

    from fleet.ports import Broken

    try:
        return anyio.run(main)
    except Broken as broken:
        raise FleetError(broken.failure.summary) from broken
    except BaseExceptionGroup as group:
        for wanted in (FleetError, KeyboardInterrupt, Broken):
            found = group.subgroup(wanted)
            if found is not None:
                first = _first(found)
                raise (FleetError(str(first)) if isinstance(first, Broken) else first) from group
        raise


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
