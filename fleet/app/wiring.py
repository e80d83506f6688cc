"""Makes the settings of each adapter from one configuration; each part is made once.

Reads the prompt files that the configuration names. Whether a setting makes sense for a worker kind is checked by
`agents/workers/registry.py`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.access import Access, missing_extra
from agents.models.service import RetryPolicy
from agents.tools.tool import OpenServers
from fleet.config.load import default_config, user_file_path
from fleet.config.schema import GATE, Config, as_policy, gate_of, machines_of
from fleet.core.base.ids import did_you_mean
from fleet.core.plans.limits import Ladder, MachineOffer, Machines, Policy, Rung, parse_rung
from fleet.core.plans.lint import Grade, grade_plan
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import Known
from fleet.engine.commands.checks import Gate
from fleet.errors import FleetError, UsageError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.ports.agents import Extras
from fleet.ports.settings import WorkerSection
from worktrees.base.settings import MIB, BoxLimits, WorktreeSettings
from worktrees.sandbox.box import has_program

NO_KEY = "no-key-is-needed"
REAL_HOST = "api.anthropic.com"
NOT_READ = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")  # of other clients of the same service
_REGIONS = {"api": (), "bedrock": ("AWS_REGION", "AWS_DEFAULT_REGION"), "vertex": ("CLOUD_ML_REGION",)}
PROMPT_FILES = (".md", ".txt")
LONGEST_PROMPT = 50_000  # characters


@dataclass(frozen=True)
class Wiring:
    """What each part of the program is given of the configuration."""

    config: Config
    environ: Mapping[str, str]

    @cached_property
    def known(self) -> Known:
        """What plans may refer to."""
        return Known(
            max_subtasks=self.config.planner.max_subtasks,
            max_areas=self.config.planner.max_areas,
            workers=frozenset(self.config.workers),
            checks=frozenset(self.config.checks.named),
            machines=self.machines,
        )

    @cached_property
    def machines(self) -> Machines:
        """The machines that may work for a run, and what worker kinds ask of them."""
        return machines_of(self.config, {name: offer for name, (offer, _) in self.others.items()})

    @cached_property
    def others(self) -> Mapping[str, tuple[MachineOffer, int]]:
        """The machines beside this one, with how many attempts each works on at most."""
        places = [each.offers for each in FEATURES.values() if each.offers and self.config.is_set(each.on)]
        return {name: offer for place in places for name, offer in load_part(place)(self.config).items()}

    @cached_property
    def command_workers(self) -> frozenset[str]:
        """The workers that are programs."""
        return frozenset(name for name, worker in self.config.workers.items() if worker.kind == "command")

    @cached_property
    def modelless_workers(self) -> frozenset[str]:
        """The workers that call no model through us: programs, and agents with an access of their own."""
        return frozenset(name for name, worker in self.config.workers.items() if not worker.calls_models)

    def has_program(self, name: str) -> bool:
        """Whether checks would find a program of this name. A set-up may install any."""
        return bool(self.config.worktrees.setup) or has_program(self.worktrees, name)

    def grade(self, plan: Plan) -> Grade:
        """What the linter finds in a plan."""
        return grade_plan(plan, self.has_program, self.command_workers)

    @cached_property
    def api_key(self) -> str:
        """The key for the model's service, or a placeholder."""
        return self.environ.get(self.config.models.api_key_env, "").strip() or NO_KEY

    @cached_property
    def has_models(self) -> bool:
        """Whether models can be called: there is a key, or the service needs none of ours."""
        if self.config.models.service != "api":
            return True
        return self.api_key != NO_KEY or urlsplit(self.config.models.base_url).hostname != REAL_HOST

    @property
    def ignored_service(self) -> str:
        """A note on variables of other programs that name a service or a token, where the usual service is called."""
        names = [name for name in NOT_READ if self.environ.get(name, "").strip()]
        if not names or urlsplit(self.config.models.base_url).hostname != REAL_HOST:
            return ""
        return (
            f"fleet does not read {' or '.join(names)}: --base-url or models.base_url names the service, "
            "models.api_key_env the variable with its key"
        )

    def require_models(self, workers: Collection[str] | None = None) -> None:
        """Raise `FleetError` if models can't be called. Not if none of a plan's `workers` calls any."""
        if workers is not None and self.modelless_workers.issuperset(workers):
            return
        if problem := missing_extra(self.access.kind):
            raise FleetError(f"models.service: {problem}")
        if self.access.kind == "vertex" and not self.access.region:
            raise FleetError("models.region is not set: name a region of Vertex, or set CLOUD_ML_REGION")
        if self.has_models:
            return
        name = self.config.models.api_key_env
        ignored = f"; {self.ignored_service}" if self.ignored_service else ""
        raise FleetError(
            f"there is no API key: set {name}, or name another service with --base-url "
            f"(`fleet simulate` starts a simulated model); a plan whose workers are all programs needs none{ignored}"
        )

    @cached_property
    def policy(self) -> Policy:
        """The limits and choices of a run, with the ladders of its workers."""
        return as_policy(self.config).model_copy(update={"rungs": self.ladders, "machines": self.machines})

    @cached_property
    def ladders(self) -> dict[str, Ladder]:
        """The ladders of the workers that have rungs. Raises `UsageError` with the key that is wrong."""
        ladders = {name: self._ladder(f"workers.{name}", worker) for name, worker in self.config.workers.items()}
        return {name: ladder for name, ladder in ladders.items() if ladder is not None}

    def _ladder(self, key: str, worker: WorkerSection) -> Ladder | None:
        if not worker.rungs and not worker.first_rung:
            return None
        rungs = tuple(Rung(model=model, effort=effort) for model, effort in map(parse_rung, worker.rungs))
        names = [rung.name for rung in rungs]
        if worker.models or worker.model:
            raise UsageError(f"{key}.rungs: the worker has a model, too", hint="name its models in the rungs alone")
        if len(set(names)) < len(names):
            raise UsageError(f"{key}.rungs: a rung is there twice", hint="a ladder leads from weak to strong")
        if not (first := " ".join(worker.first_rung.split())):
            return Ladder(rungs=rungs)
        if first not in names:
            raise UsageError(f"{key}.first_rung: {first!r} is none of the rungs", hint=f"they are {', '.join(names)}")
        return Ladder(rungs=rungs, first=names.index(first))

    @cached_property
    def workers(self) -> dict[str, WorkerSettings]:
        """The settings of each worker. Raises `UsageError` with the key that is wrong."""
        return {name: self._worker(f"workers.{name}", worker) for name, worker in self.config.workers.items()}

    @property
    def base_url(self) -> str:
        """The address of the service; empty for a cloud's own, which follows from the region."""
        models = self.config.models
        usual = models.service != "api" and urlsplit(models.base_url).hostname == REAL_HOST
        return "" if usual else models.base_url

    @property
    def _headers(self) -> dict[str, str]:
        """Raises `UsageError` for a variable that is not set."""
        headers = dict(self.config.models.headers)
        for name, value in headers.items():
            if value.startswith("$"):
                headers[name] = self.environ.get(value[1:], "").strip()
                if not headers[name] or not headers[name].isprintable():
                    why = "is not one line of text" if headers[name] else "is not set"
                    raise UsageError(f"models.headers.{name}: {value[1:]} {why}", hint="set it, or remove the header")
        return headers

    def _first_set(self, *names: str) -> str:
        return next((value for name in names if (value := self.environ.get(name, "").strip())), "")

    @cached_property
    def access(self) -> Access:
        """How the models' service is reached, and what it lacks."""
        models = self.config.models
        return Access(
            base_url=self.base_url,
            api_key=self.api_key,
            kind=models.service,
            bearer=models.auth == "bearer",
            headers=self._headers,
            region=models.region or self._first_set(*_REGIONS[models.service]),
            project=models.project or self._first_set("ANTHROPIC_VERTEX_PROJECT_ID"),
            without=frozenset(models.without),
            model_without={model: frozenset(names) for model, names in models.model_without.items()},
        )

    def agents(self, transcripts: Path) -> AgentSettings:
        """The settings of the agents, which write their conversations to the folder `transcripts`."""
        models = self.config.models
        retry = RetryPolicy(models.retries, self.config.limits.backoff_first_s, models.retry_after_cap_s)
        return AgentSettings(
            self.access,
            transcripts,
            models,
            self.config.planner,
            self.workers,
            retry,
            self.servers,
        )

    @cached_property
    def servers(self) -> OpenServers | None:
        """Opens the servers whose tools workers have. Raises `UsageError` with the key that is wrong."""
        naming = [name for name, worker in self.config.workers.items() if worker.mcp]
        place = next((feature.servers for feature in FEATURES.values() if feature.servers), "")
        if naming and not place:
            raise UsageError(f"workers.{naming[0]}.mcp: there are no servers", hint="remove it from the worker")
        return cast("OpenServers", load_part(place)(self)) if naming else None

    @cached_property
    def gate(self) -> Gate:
        checks = self.config.checks
        gate = gate_of(checks)
        commands = {**checks.named, GATE: checks.gate}
        return Gate(
            criteria=(gate,) if checks.gate.strip() else (),
            named=dict(checks.named),
            results={commands[name]: files for name, files in checks.tests.items()},
            reruns=checks.reruns,
            expected_tests=checks.expected_tests,
        )

    @property
    def home(self) -> Path:
        """The home of the person who runs the fleet."""
        return Path(self.environ.get("HOME") or Path.home())

    @cached_property
    def worktrees(self) -> WorktreeSettings:
        config, box = self.config, self.config.box
        chains = shown_by(box.tool_chains, self.home)
        shown = {
            "read_only": (*box.read_only, *chains.read_only),
            "path": (*box.path, *chains.path),
            "environment": {**chains.environment, **box.environment},
        }
        limits = BoxLimits(memory_bytes=box.memory_mb * MIB, disk_bytes=box.disk_mb * MIB)
        state_dir, box = Path(config.state.dir), box.model_copy(update=shown)
        return WorktreeSettings(state_dir, box, config.worktrees, config.checks, config.git, limits)

    def _worker(self, key: str, worker: WorkerSection) -> WorkerSettings:
        default = default_config().workers["coder"]
        try:
            _ = worker.words
        except ValueError as error:
            raise UsageError(f"{key}.command: {worker.command!r} can't be split into words: {error}") from error
        own = {
            "prompt": _prompt(key, worker.prompt),
            "passed": self._passed_environment(key, worker),
            "changed": frozenset(name for name, value in default if getattr(worker, name) != value),
        }
        return WorkerSettings(**{**dict(worker), **own})

    def _passed_environment(self, key: str, worker: WorkerSection) -> dict[str, str]:
        missing = ", ".join(name for name in worker.pass_environment if name not in self.environ)
        if missing:
            raise UsageError(f"{key}.pass_environment: {missing} is not set", hint="set it, or remove it from the list")
        return {name: self.environ[name] for name in worker.pass_environment}


def _prompt(key: str, prompt: str) -> str:
    """The prompt itself, or the text of the file that it names in the user's configuration folder."""
    if "\n" in prompt or not prompt.endswith(PROMPT_FILES):
        return prompt
    path = user_file_path().parent / Path(prompt).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{key}.prompt: {path} can't be read: {why}") from error
    if len(text) > LONGEST_PROMPT:
        raise UsageError(
            f"{key}.prompt: {path} has {len(text):,} characters", hint=f"at most {LONGEST_PROMPT:,} are allowed"
        )
    return text


# ---- tool chains -----------------------------------------------------------------------------------------------------
# Tool chains that live in a person's home (rustup, nvm, uv …), and the parts of them that the box shows, read-only.
#
# Each is a row of `TOOL_CHAINS`: its folders below the home, the programs' folders, and the variables it needs. Only
# these parts are shown, each at its own path. Credentials, configuration and caches beside them stay hidden:
# `~/.cargo` has a registry token, `~/.local/share/uv` may have passwords. `found_in` lists the tool chains of a home,
# `shown_by` what the box then shows.


IN_BOX = "/repo"  # the worktree, which these tools must trust
SYSTEM = ("/usr", "/opt", "/nix")  # where a part may be a link to


@dataclass(frozen=True, slots=True)
class ToolChain:
    """What of a home belongs to a tool chain. Paths are relative to the home and may have `*`."""

    name: str
    shows: tuple[str, ...]
    """Folders and files; those that are not there are left out."""
    path: tuple[str, ...]
    """Folders of programs, the first one first. Of several that match a pattern, the newest version is the first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables; `{home}` is replaced by the home."""
    chosen: str = ""
    """A file that names the version to use, such as nvm's alias."""
    system_path: tuple[str, ...] = ()
    """Folders of programs outside of the home, which the box shows anyway but does not have in its PATH."""


TOOL_CHAINS: Mapping[str, ToolChain] = {
    chain.name: chain
    for chain in (
        ToolChain(
            "rustup",
            (".rustup/toolchains", ".rustup/update-hashes", ".rustup/settings.toml", ".cargo/bin"),
            (".cargo/bin",),
            {"RUSTUP_HOME": "{home}/.rustup"},
        ),
        ToolChain("nvm", (".nvm/versions/node",), (".nvm/versions/node/*/bin",), chosen=".nvm/alias/default"),
        ToolChain("fnm", (".local/share/fnm/node-versions",), (".local/share/fnm/node-versions/*/installation/bin",)),
        ToolChain(
            "volta", (".volta/bin", ".volta/tools"), (".volta/tools/image/node/*/bin", ".volta/tools/image/yarn/*/bin")
        ),
        ToolChain(
            "asdf",
            (".asdf/asdf.sh", ".asdf/bin", ".asdf/lib", ".asdf/installs", ".asdf/plugins", ".asdf/shims"),
            (".asdf/shims", ".asdf/bin"),
            {"ASDF_DIR": "{home}/.asdf", "ASDF_DATA_DIR": "{home}/.asdf"},
        ),
        ToolChain(
            "mise",
            (".local/bin/mise", ".local/share/mise/installs", ".local/share/mise/shims", ".local/share/mise/plugins"),
            (".local/share/mise/shims",),
            {"MISE_DATA_DIR": "{home}/.local/share/mise", "MISE_TRUSTED_CONFIG_PATHS": IN_BOX},
        ),
        ToolChain(
            "uv",
            (".local/share/uv/python", ".local/bin/uv", ".local/bin/uvx"),
            (".local/bin", ".local/share/uv/python/*/bin"),
            {"UV_PYTHON_INSTALL_DIR": "{home}/.local/share/uv/python", "UV_PYTHON_DOWNLOADS": "never"},
        ),
        ToolChain(
            "pyenv",
            (".pyenv/bin", ".pyenv/libexec", ".pyenv/shims", ".pyenv/versions", ".pyenv/version", ".pyenv/plugins"),
            (".pyenv/shims", ".pyenv/bin"),
            {"PYENV_ROOT": "{home}/.pyenv"},
        ),
        ToolChain(
            "rbenv",
            (".rbenv/bin", ".rbenv/libexec", ".rbenv/shims", ".rbenv/versions", ".rbenv/version"),
            (".rbenv/shims", ".rbenv/bin"),
            {"RBENV_ROOT": "{home}/.rbenv"},
        ),
        ToolChain(
            "sdkman",
            (".sdkman/candidates",),
            tuple(f".sdkman/candidates/{name}/current/bin" for name in ("java", "gradle", "maven", "kotlin", "sbt")),
            {"JAVA_HOME": "{home}/.sdkman/candidates/java/current"},
        ),
        ToolChain(
            "go",
            ("sdk", "go/bin", ".local/go"),
            ("go/bin", ".local/go/bin", "sdk/go*/bin"),
            system_path=("/usr/local/go/bin",),
        ),
        ToolChain("bun", (".bun/bin",), (".bun/bin",)),
        ToolChain("deno", (".deno/bin",), (".deno/bin",)),
        ToolChain("ghcup", (".ghcup/bin", ".ghcup/ghc"), (".ghcup/bin",)),
        ToolChain("juliaup", (".juliaup/bin", ".julia/juliaup"), (".juliaup/bin",)),
    )
}


def found_in(home: Path) -> tuple[str, ...]:
    """The names of the tool chains that a home has, by the folders of their programs."""
    return tuple(name for name, chain in TOOL_CHAINS.items() if _folders(home, chain))


def shown_by(names: Iterable[str], home: Path) -> Extras:
    """What the box shows of these tool chains. Raises `UsageError` for one that is not known."""
    chains = [_chain(name) for name in names]
    return Extras(
        read_only=tuple(dict.fromkeys(str(path) for chain in chains for path in _visible(home, chain))),
        path=tuple(dict.fromkeys(str(folder) for chain in chains for folder in _folders(home, chain))),
        environment={
            name: value.format(home=home)
            for chain in chains
            if any(_visible(home, chain))
            for name, value in chain.environment.items()
        },
    )


def _chain(name: str) -> ToolChain:
    if name not in TOOL_CHAINS:
        known = did_you_mean(name, TOOL_CHAINS) or f"; there are: {', '.join(TOOL_CHAINS)}"
        raise UsageError(f"box.tool_chains: {name!r} is not known{known}", hint="others: box.read_only and box.path")
    return TOOL_CHAINS[name]


def _visible(home: Path, chain: ToolChain) -> Iterator[Path]:
    """The parts that are there. A link could lead to anything: it is followed only to where systems keep programs."""
    top = home.resolve()
    for shown in chain.shows:
        path = home / shown
        real = path.resolve()
        if path.exists() and (real == top / shown or any(real.is_relative_to(place) for place in SYSTEM)):
            yield path


def _folders(home: Path, chain: ToolChain) -> Sequence[Path]:
    visible = tuple(_visible(home, chain))
    found = [folder for pattern in chain.path for folder in _newest_first(home, pattern)]
    wanted = _wanted_version(home, chain)
    folders = sorted(found, key=lambda folder: not (wanted and any(part.startswith(wanted) for part in folder.parts)))
    system = [Path(folder) for folder in chain.system_path if Path(folder).is_dir()]
    return [*(folder for folder in folders if _is_shown(folder, visible)), *system]


def _is_shown(folder: Path, visible: Sequence[Path]) -> bool:
    """Whether the box has the folder: it is below something that is shown, or holds a program that is."""
    return any(folder.is_relative_to(path) or path.parent == folder for path in visible)


def _newest_first(home: Path, pattern: str) -> list[Path]:
    folders = [path for path in home.glob(pattern) if path.is_dir()]
    return sorted(folders, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))], reverse=True)


def _wanted_version(home: Path, chain: ToolChain) -> str:
    """The version that a file chooses, as the folders are called; empty for an alias of an alias."""
    try:
        text = (home / chain.chosen).read_text(encoding="utf-8").strip() if chain.chosen else ""
    except (OSError, UnicodeDecodeError):
        return ""
    return f"v{text.removeprefix('v')}" if re.fullmatch(r"v?\d+(?:\.\d+)*", text) else ""
