"""Makes the settings of each adapter from one configuration. Each part is made once.

Reads the prompt files named in the configuration. `agents/workers/registry.py` checks the settings of each worker kind.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
from fleet.core.plans.limits import Ladder, MachineOffer, Machines, Policy, Rung, parse_rung
from fleet.core.plans.lint import Grade, grade_plan
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext
from fleet.engine.checks import Gate
from fleet.errors import FleetError, UsageError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.ports.settings import WorkerSection
from worktrees.base.settings import MIB, BoxLimits, WorktreeSettings
from worktrees.sandbox.box import has_program

NO_KEY = "no-key-is-needed"
REAL_HOST = "api.anthropic.com"
NOT_READ = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")  # used by other clients of the same service
_REGIONS = {"api": (), "bedrock": ("AWS_REGION", "AWS_DEFAULT_REGION"), "vertex": ("CLOUD_ML_REGION",)}
PROMPT_FILES = (".md", ".txt")
LONGEST_PROMPT = 50_000  # characters


@dataclass(frozen=True)
class Wiring:
    """The parts of the configuration, as the settings of each adapter."""

    config: Config
    environ: Mapping[str, str]

    @cached_property
    def known(self) -> PlanContext:
        """The names and limits that plans are checked against."""
        return PlanContext(
            max_subtasks=self.config.planner.max_subtasks,
            max_areas=self.config.planner.max_areas,
            workers=frozenset(self.config.workers),
            checks=frozenset(self.config.checks.named),
            machines=self.machines,
        )

    @cached_property
    def machines(self) -> Machines:
        """The machines that may work for a run, and the labels that workers require."""
        return machines_of(self.config, {name: offer for name, (offer, _) in self.others.items()})

    @cached_property
    def others(self) -> Mapping[str, tuple[MachineOffer, int]]:
        """The other machines, each with its maximum number of attempts."""
        places = [each.offers for each in FEATURES.values() if each.offers and self.config.is_set(each.on)]
        return {name: offer for place in places for name, offer in load_part(place)(self.config).items()}

    @cached_property
    def command_workers(self) -> frozenset[str]:
        """The workers that are programs."""
        return frozenset(name for name, worker in self.config.workers.items() if worker.kind == "command")

    @cached_property
    def modelless_workers(self) -> frozenset[str]:
        """The workers that do not call models through fleet: programs, and agents with separate access."""
        return frozenset(name for name, worker in self.config.workers.items() if not worker.calls_models)

    def has_program(self, name: str) -> bool:
        """Whether checks can find a program. With a setup command, the answer is always yes."""
        return bool(self.config.worktrees.setup) or has_program(self.worktrees, name)

    def grade(self, plan: Plan) -> Grade:
        """Run the linter on a plan."""
        return grade_plan(plan, self.has_program, self.command_workers)

    @cached_property
    def api_key(self) -> str:
        """The key for the model service, or a placeholder."""
        return self.environ.get(self.config.models.api_key_env, "").strip() or NO_KEY

    @cached_property
    def has_models(self) -> bool:
        """Whether models can be called: a key is set, or the service does not require one."""
        if self.config.models.service != "api":
            return True
        return self.api_key != NO_KEY or urlsplit(self.config.models.base_url).hostname != REAL_HOST

    @property
    def ignored_service(self) -> str:
        """A note about variables of other programs that fleet ignores, if the default service is used."""
        names = [name for name in NOT_READ if self.environ.get(name, "").strip()]
        if not names or urlsplit(self.config.models.base_url).hostname != REAL_HOST:
            return ""
        return (
            f"fleet ignores {' and '.join(names)}: set --base-url or models.base_url for the service, "
            "and models.api_key_env for the name of the variable with its key"
        )

    def require_models(self, workers: Collection[str] | None = None) -> None:
        """Raise `FleetError` if models can't be called, unless none of a plan's `workers` calls a model."""
        if workers is not None and self.modelless_workers.issuperset(workers):
            return
        if problem := missing_extra(self.access.kind):
            raise FleetError(f"models.service: {problem}")
        if self.access.kind == "vertex" and not self.access.region:
            raise FleetError("models.region is not set", hint="set it to a Vertex region, or set $CLOUD_ML_REGION")
        if self.has_models:
            return
        name = self.config.models.api_key_env
        ignored = f". {self.ignored_service}" if self.ignored_service else ""
        raise FleetError(
            f"no API key: {name} is not set",
            hint=f"export {name}=…, or use --base-url for another service (`fleet simulate` starts one){ignored}",
        )

    @cached_property
    def policy(self) -> Policy:
        """The limits and choices of a run, with the ladders of its workers."""
        return as_policy(self.config).model_copy(update={"rungs": self.ladders, "machines": self.machines})

    @cached_property
    def ladders(self) -> dict[str, Ladder]:
        """The ladders of the workers with rungs. Raises `UsageError` with the wrong key."""
        ladders = {name: self._ladder(f"workers.{name}", worker) for name, worker in self.config.workers.items()}
        return {name: ladder for name, ladder in ladders.items() if ladder is not None}

    def _ladder(self, key: str, worker: WorkerSection) -> Ladder | None:
        if not worker.rungs and not worker.first_rung:
            return None
        rungs = tuple(Rung(model=model, effort=effort) for model, effort in map(parse_rung, worker.rungs))
        names = [rung.name for rung in rungs]
        if worker.models or worker.model:
            raise UsageError(f"{key}: model and rungs can't be used together", hint="name the models only in rungs")
        if len(set(names)) < len(names):
            raise UsageError(f"{key}.rungs: duplicate rung", hint="list each rung once, from weakest to strongest")
        if not (first := " ".join(worker.first_rung.split())):
            return Ladder(rungs=rungs)
        if first not in names:
            raise UsageError(
                f"{key}.first_rung: {first!r} is not in rungs",
                hint=f"use one of {', '.join(names)}" if names else "set rungs, too",
            )
        return Ladder(rungs=rungs, first=names.index(first))

    @cached_property
    def workers(self) -> dict[str, WorkerSettings]:
        """The settings of each worker. Raises `UsageError` with the wrong key."""
        return {name: self._worker(f"workers.{name}", worker) for name, worker in self.config.workers.items()}

    @property
    def base_url(self) -> str:
        """The address of the service. Empty if the region determines it."""
        models = self.config.models
        usual = models.service != "api" and urlsplit(models.base_url).hostname == REAL_HOST
        return "" if usual else models.base_url

    @property
    def _headers(self) -> dict[str, str]:
        """The configured headers. Raises `UsageError` for an unset variable."""
        headers = dict(self.config.models.headers)
        for name, value in headers.items():
            if value.startswith("$"):
                headers[name] = self.environ.get(value[1:], "").strip()
                if not headers[name] or not headers[name].isprintable():
                    why = "is not a single line of text" if headers[name] else "is not set"
                    raise UsageError(f"models.headers.{name}: ${value[1:]} {why}", hint="set it or remove the header")
        return headers

    def _first_set(self, *names: str) -> str:
        return next((value for name in names if (value := self.environ.get(name, "").strip())), "")

    @cached_property
    def access(self) -> Access:
        """The access to the model service, and the features it does not support."""
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
        """Opens the servers whose tools workers use. Raises `UsageError` with the wrong key."""
        naming = [name for name, worker in self.config.workers.items() if worker.mcp]
        place = next((feature.servers for feature in FEATURES.values() if feature.servers), "")
        if naming and not place:
            raise UsageError(
                f"workers.{naming[0]}.mcp: this installation does not support servers", hint="remove the key"
            )
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
        """The home of the user."""
        return Path(self.environ.get("HOME") or Path.home())

    @cached_property
    def worktrees(self) -> WorktreeSettings:
        config, box = self.config, self.config.box
        limits = BoxLimits(memory_bytes=box.memory_mb * MIB, disk_bytes=box.disk_mb * MIB)
        if box.tool_chains:
            from worktrees.sandbox.tool_chains import with_tool_chains  # noqa: PLC0415 - rarely used

            box = with_tool_chains(box, self.home)
        return WorktreeSettings(Path(config.state.dir), box, config.worktrees, config.checks, config.git, limits)

    def _worker(self, key: str, worker: WorkerSection) -> WorkerSettings:
        default = default_config().workers["coder"]
        try:
            _ = worker.words
        except ValueError as error:
            raise UsageError(f"{key}.command: can't parse {worker.command!r}: {error}") from error
        own = {
            "prompt": _prompt(key, worker.prompt),
            "passed": self._passed_environment(key, worker),
            "changed": frozenset(name for name, value in default if getattr(worker, name) != value),
        }
        return WorkerSettings(**{**dict(worker), **own})

    def _passed_environment(self, key: str, worker: WorkerSection) -> dict[str, str]:
        missing = ", ".join(name for name in worker.pass_environment if name not in self.environ)
        if missing:
            raise UsageError(f"{key}.pass_environment: {missing} is not set", hint="set it or remove it from the list")
        return {name: self.environ[name] for name in worker.pass_environment}


def _prompt(key: str, prompt: str) -> str:
    """The prompt, or the text of the named file in the user's configuration folder."""
    if "\n" in prompt or not prompt.endswith(PROMPT_FILES):
        return prompt
    path = user_file_path().parent / Path(prompt).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{key}.prompt: can't read {path}: {why}") from error
    if len(text) > LONGEST_PROMPT:
        raise UsageError(
            f"{key}.prompt: {path} is too long ({len(text):,} characters)",
            hint=f"shorten it to {LONGEST_PROMPT:,} characters",
        )
    return text
