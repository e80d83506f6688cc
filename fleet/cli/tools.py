"""Verbs around runs: doctor, init, config, explain-policy, simulate, clean."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.common import (
    HERE,
    AsJson,
    BaseUrl,
    ConfigFile,
    Repo,
    Sandbox,
    configuration,
    root_of,
    run_async,
    show,
    show_json,
    state_settings,
)
from fleet.errors import FleetError, UsageError


def register(app: typer.Typer) -> None:
    for verb in (doctor, init, simulate, clean):
        app.command()(verb)
    app.command(name="explain-policy")(explain_policy)
    config = typer.Typer(no_args_is_help=True, help="What is configured, and where it comes from.")
    config.command(name="show")(config_show)
    app.add_typer(config, name="config")


def doctor(
    repo: Repo = HERE,
    base_url: BaseUrl = None,
    config: ConfigFile = None,
    sandbox: Sandbox = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine; say how to mend it.

    \b
    Examples:
      fleet doctor
      fleet doctor --repo ../service --json
    """
    from fleet.cli.doctor import examine
    from fleet.environment import current

    loaded = configuration(repo, config, {"box.sandbox": sandbox, "models.base_url": base_url})
    findings = run_async(lambda: examine(loaded.config, current(), repo))
    if as_json:
        show_json([{"what": f.what, "ok": f.ok, "says": f.says, "fix": f.fix} for f in findings])
    else:
        for finding in findings:
            show([f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what:<12} {finding.says}"])
            if finding.fix:
                show([f"{'':<18} → {finding.fix}"])
    raise typer.Exit(0 if all(finding.ok for finding in findings) else FleetError.exit_code)


def init(
    repo: Repo = HERE, force: Annotated[bool, typer.Option("--force", help="Overwrite a fleet.toml.")] = False
) -> None:
    """Write a commented fleet.toml.

    For the repository you are in, with the test command found in it.

    \b
    Examples:
      fleet init
      fleet init --repo ../service
    """
    from fleet.scaffold import scaffold

    root = root_of(repo)
    if root is None:
        raise UsageError(f"{repo.absolute()} is not in a git repository; make one with: git init")
    path = root / "fleet.toml"
    if path.exists() and not force:
        raise UsageError(f"{path} exists; --force overwrites it")
    text, found = scaffold(root)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    typer.echo(f"wrote {path}: {found}")
    typer.echo('next: fleet doctor, then fleet run "…"')


def simulate(
    script: Annotated[Path, typer.Argument(help="What the simulated model does: a JSON or TOML file.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Where to listen; loopback unless told otherwise.")] = "127.0.0.1",
) -> None:
    """Serve a simulated model that plays a script.

    It speaks the Messages API, and thinks nothing.

    \b
    Examples:
      fleet simulate script.toml --port 8080
      fleet run epic.md --base-url http://127.0.0.1:8080
    """
    from agents.simulated.server import run_simulation
    from fleet.epic import read_data

    def announce(line: str) -> None:
        typer.echo(line)
        sys.stdout.flush()

    run_simulation(script, host, port, announce, read=read_data)


def clean(
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this, only say what would go.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Also forget ended runs whose work has all landed.")] = False,
    ended: Annotated[
        bool,
        typer.Option("--ended", help="Also forget all other ended runs; commits that did not land stay in the store."),
    ] = False,
    max_gb: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Remove only what it takes for all of the fleet's to fit; idle longest goes first. "
            "[default: state.max_gb; 0 removes all that can go]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what runs left behind, by kind, or remove it.

    With --apply it is removed. Work that has not landed never is. With a limit (--max-gb, or state.max_gb in your
    configuration) no more goes than it takes for the rest to fit.

    \b
    Examples:
      fleet clean
      fleet clean --apply --runs
      fleet clean --apply --max-gb 20
      fleet clean --json | jq .kinds
    """
    from fleet.cli.tidy import Wanted, as_data, shown, tidy

    settings = state_settings()
    limit = (settings.max_gb or None) if max_gb is None else max_gb
    wanted = Wanted(apply=apply, runs=runs, ended=ended, max_bytes=None if limit is None else int(limit * 1e9))
    found = run_async(lambda: tidy(Path(settings.dir), wanted))
    if as_json:
        show_json(as_data(found, wanted))
    else:
        show(shown(found, wanted))


def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value comes from.")] = False,
    repo: Repo = HERE,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the configuration that holds here.

    \b
    Examples:
      fleet config show --origin
      FLEET_RUN_WORKERS=100 fleet config show --json | jq .run
    """
    from fleet.toml import dump_toml

    loaded = configuration(repo, config)
    data = loaded.config.model_dump(mode="json")
    if as_json:
        show_json({"config": data, "origin": loaded.origin} if origin else data)
    elif origin:
        width = max(map(len, loaded.origin))
        show(f"{key:<{width}}  {_value(data, key)}  ({where})" for key, where in loaded.origin.items())
    else:
        typer.echo(dump_toml(data), nl=False)


def explain_policy(repo: Repo = HERE, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """What is done about which failure, and where it stops.

    The table that decides, with the limits that hold here.

    \b
    Examples:
      fleet explain-policy
      fleet explain-policy --json | jq -r '.ladder[] | select(.counts) | .kind'
    """
    from dashboards.tables import policy_lines
    from fleet.core.explained import explained
    from fleet.settings import as_policy

    said = explained(as_policy(configuration(repo, config).config))
    if as_json:
        show_json(said)
    else:
        show(policy_lines(said))


def _value(data: object, dotted: str) -> str:
    """The value at a dotted key; quoted parts are names with dots in them."""
    import re

    here = data
    for part in re.findall(r'"[^"]*"|[^.]+', dotted):
        here = here.get(part.strip('"')) if isinstance(here, dict) else None
    text = str(here)
    return text if len(text) <= (limit := 60) else f"{text[: limit - 1]}…"
