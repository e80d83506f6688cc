"""The box: what a command that a model wrote may see and do. Bubblewrap by default, nothing at all by explicit choice.

Knows how to start one command in one worktree and how to tell a command that failed from a box that could not be made.
The worktree's own `.git` is covered: by a pointer to a decoy where there is one, else by nothing to be seen.
"""

import json
import os
import resource
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from anyio import CapacityLimiter

from fleet.core.facts import Failure
from fleet.ports import NO_EXTRAS, Broken, Extras, FleetError
from worktrees.decoy import POINTER, PROGRAM, PROGRAMS, ROOT, Decoy
from worktrees.forker import UNMOUNTED
from worktrees.guard import Guard, guarded
from worktrees.marks import MARK, Manager, this_manager
from worktrees.mount import Overlay, devices_closed, found, mounted
from worktrees.process import GATE, REFUSED, Finished, Launch, Starter, memory_file, run
from worktrees.seccomp import filter_program
from worktrees.serving import serving
from worktrees.settings import MIB, BoxLimits, HandSettings
from worktrees.surroundings import HOME, SYSTEM_PATH, bare_environment, environment_of, reporting

MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC_FOLDERS = ("alternatives", "ld.so.conf.d", "ssl")
ETC_FILES = ("ld.so.cache", "ld.so.conf", "localtime", "mime.types", "services")
PASSWD = b"worker:x:1000:1000::/home/worker:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
GROUP = b"worker:x:1000:\nnogroup:x:65534:\n"
HOSTS = b"127.0.0.1 localhost worker\n::1 localhost\n"
NAMESPACES = (
    *("--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--hostname", "worker", "--disable-userns"),
    *("--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"),
)
NO_INPUT = "/dev/null"
ULIMIT_BLOCK = 512  # bytes
QUEUES = "/fleet/mqueue"  # where message queues show that outlast who made them
HOMES = os.path.dirname(HOME)  # noqa: PTH120
EMPTIED = ("/tmp", "/dev/shm", HOME, HOMES, "/run", QUEUES)  # noqa: S108 - inside; between commands that share a box


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: a worktree, a folder for its odds and ends, and the mark its processes carry."""

    tree: Path
    scratch: Path
    mark: str
    overlay: Overlay | None = None
    """The worktree is mounted at `tree` for each command; otherwise it lies there."""
    environment: Mapping[str, str] = field(default_factory=dict)
    decoy: Decoy | None = None
    """The git repository that commands see; none without it."""


@dataclass(frozen=True, slots=True)
class Box:
    """How commands are run; one for all worktrees."""

    settings: HandSettings
    manager: Manager = field(default_factory=this_manager)
    starter: Starter | None = field(default=None, compare=False)
    """Who starts it, if that is not each time a program of its own."""

    def root(self, place: Place) -> str:
        """The worktree's path as the command sees it."""
        return ROOT if self.settings.sandbox == "bubblewrap" else str(place.tree)

    def _shown(self, report: Path) -> Path:
        return Path("/run", report.name) if self.settings.sandbox == "bubblewrap" else report

    def with_(self, extras: Extras) -> "Box":
        """The box that shows and allows these, too."""
        if extras == NO_EXTRAS:
            return self
        settings = self.settings
        wider = replace(
            settings,
            read_only=(*settings.read_only, *map(Path, extras.read_only)),
            path=(*map(Path, extras.path), *settings.path),
            environment={**settings.environment, **extras.environment},
            network=settings.network if extras.network is None else extras.network,
        )
        return replace(self, settings=wider)

    def shell(self, script: str) -> tuple[str, ...]:
        """The command line that runs a script as the shell of this machine would."""
        return ("bash" if found("bash") else "sh", "-c", script)

    async def run(
        self,
        place: Place,
        argv: Sequence[str],
        *,
        timeout_s: float,
        data: bytes = b"",
        merged: bool = True,
        cap: int,
        report: Path | None = None,
        turn: CapacityLimiter | None = None,
    ) -> Finished:
        """Run a command to its end. Raises `Broken` when there was no box to run it in.

        Where there is a pipe for a `report`, pytest is asked to write its own into it. A `turn` is waited for when
        everything else is ready.
        """
        with ExitStack() as files:
            given = files.enter_context(memory_file(data)) if data else None
            own = () if given is None else (given,)
            environment = self._environment(place, report)
            if self.settings.sandbox == "none":
                bare = bare_environment(self.settings, place.scratch, environment)
                gated = (*_gate(given), *argv)
                launch = Launch(gated, bare, cwd=place.tree, pass_fds=own, merged=merged, gated=True, turn=turn)
                return await run(launch, timeout_s=timeout_s, cap=cap)
            gated = (*_gate(given, before=_limits(self.settings.limits)), *argv)
            boxed = files.enter_context(_boxed(self.settings, place, gated, environment, report))
            guard = Guard(self.settings.limits, boxed.init, *own_folders(place))
            async with self._launch(place, boxed, environment[MARK], own, merged=merged, turn=turn) as launch:
                done = await guarded(partial(run, launch, timeout_s=timeout_s, cap=cap), guard)
            if not done.timed_out and not guard.verdict and not boxed.reports_exit():
                said = (done.stderr or done.stdout).decode("utf-8", "replace")[-2000:]
                raise Broken(Failure(kind="infrastructure", summary="the sandbox could not be started", evidence=said))
        if not guard.verdict:
            return done
        note = f"\n[ended by the sandbox: it took {guard.verdict}]\n".encode()
        where = "stdout" if merged else "stderr"
        return replace(done, exit_code=-signal.SIGKILL, **{where: getattr(done, where) + note})

    @contextmanager
    def standing(self, place: Place, report: Path | None) -> Iterator[Launch | None]:
        """How a box is started that stays, with a shell in it that serves; see `stations.py`.

        None where commands could reach each other: without a sandbox, or without its filter of system calls.
        """
        starter = self._starter()
        if self.settings.sandbox == "none" or not (self.settings.syscall_filter and filter_program()) or not starter:
            yield None
            return
        environment = self._environment(place, report)
        kept = (HOME, *((str(self._shown(report)),) if report else ()))
        serve = f"{_limits(self.settings.limits)}{serving(ROOT, EMPTIED, kept)}"
        argv = ("sh", "-c", serve, "gate", *self.shell("")[:-1])
        with _boxed(self.settings, place, argv, environment, report, stays=True) as boxed:
            yield replace(self._launched(place, boxed, environment[MARK]), starter=starter)

    def _environment(self, place: Place, report: Path | None) -> dict[str, str]:
        """What a command has around it."""
        environment = {**environment_of(self.settings), **place.environment, MARK: self.manager.mark(place.mark)}
        if report is not None:
            environment["PYTEST_ADDOPTS"] = reporting(environment, self._shown(report))
        if place.decoy and self.settings.sandbox != "none":
            environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
        return environment

    @asynccontextmanager
    async def _launch(
        self,
        place: Place,
        boxed: "_Boxed",
        mark: str,
        given: tuple[int, ...] = (),
        *,
        merged: bool,
        turn: CapacityLimiter | None,
    ) -> AsyncIterator[Launch]:
        """How bubblewrap is started, where the worktree has been made ready to be mounted."""
        async with mounted_for(place) as options:
            before = mounted(options) if options else devices_closed()
            launch = self._launched(place, boxed, mark, before)
            fds = (*launch.pass_fds, *given)
            starter = self._starter() if before else None
            yield replace(launch, overlay=options, starter=starter, pass_fds=fds, merged=merged, turn=turn)

    def _starter(self) -> Starter | None:
        """Who may start boxes: not where one is to be shown what is not mounted there."""
        return None if any(path.is_relative_to(UNMOUNTED) for path in self.settings.read_only) else self.starter

    def _launched(self, place: Place, boxed: "_Boxed", mark: str, before: tuple[str, ...] = ()) -> Launch:
        return Launch(
            boxed.command,
            {"PATH": os.pathsep.join(SYSTEM_PATH), MARK: mark},
            before,
            cwd=place.overlay.home if place.overlay else Path("/"),
            pass_fds=boxed.fds,
            merged=True,
            gated=True,
            init=boxed.init,
        )


def own_folders(place: Place) -> tuple[tuple[Path, ...], bool]:
    """Where a command may leave files on disk, and whether all in there is the tenant's."""
    if place.overlay is not None:
        return (place.overlay.upper.parent,), True
    return (place.tree, *((place.decoy.folder,) if place.decoy else ())), False


@asynccontextmanager
async def mounted_for(place: Place) -> AsyncIterator[str]:
    """How the worktree is mounted, where it has to be, and the right to do so."""
    if place.overlay is None:
        yield ""
    else:
        async with place.overlay.turn() as options:
            yield options


def require(settings: HandSettings) -> None:
    """Raises `FleetError` with the remedy when boxes can't be made here."""
    if settings.sandbox == "bubblewrap" and shutil.which("bwrap") is None:
        raise FleetError(
            "bubblewrap is not installed, and workers run commands that a model wrote. "
            "Install it: apt-get install bubblewrap; or run without any sandbox: --sandbox none"
        )


@dataclass(frozen=True, slots=True)
class _Boxed:
    """A command line for bubblewrap, the descriptors it needs, and the one of them that it reports to."""

    command: tuple[str, ...]
    fds: tuple[int, ...]
    status: int

    def init(self) -> int | None:
        """The first process in the box."""
        return next((said["child-pid"] for said in self._said() if "child-pid" in said), None)

    def reports_exit(self) -> bool:
        """Whether bubblewrap got as far as to see the command end."""
        return any("exit-code" in said for said in self._said())

    def _said(self) -> list[dict[str, int]]:
        lines = os.pread(self.status, 4096, 0).decode("utf-8", "replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _gate(given: int | None, *, before: str = "") -> tuple[str, ...]:
    return ("sh", "-c", f"{before}{GATE}", "gate", NO_INPUT if given is None else f"/proc/self/fd/{given}")


@contextmanager
def _boxed(
    settings: HandSettings,
    place: Place,
    argv: Sequence[str],
    environment: Mapping[str, str],
    report: Path | None,
    *,
    stays: bool = False,
) -> Iterator[_Boxed]:
    with ExitStack() as files:
        decoy = place.decoy
        refused = (filter_program() if settings.syscall_filter else None) or b""
        contents = (PASSWD, GROUP, HOSTS, POINTER if decoy else b"", PROGRAM, decoy.excluded if decoy else b"", refused)
        passwd, group, hosts, pointer, program, excluded, filtered = given = tuple(
            files.enter_context(memory_file(content)) for content in contents
        )
        etc = {name: fd for name in ETC_FILES if (fd := _opened(files, f"/etc/{name}")) is not None}
        arguments = [
            *NAMESPACES,
            *(("--seccomp", str(filtered)) if refused else ()),
            *(() if settings.network else ("--unshare-net",)),
            *_root(settings.limits, place.scratch if stays else None),
            *_file(passwd, "/etc/passwd"),
            *_file(group, "/etc/group"),
            *(part for name, content in etc.items() for part in _file(content, f"/etc/{name}")),
            *(("--ro-bind-try", "/etc/hosts", "/etc/hosts") if settings.network else ()),
            *(("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf") if settings.network else ()),
            *(() if settings.network else _file(hosts, "/etc/hosts")),
            *(part for path in _shown(settings.read_only) for part in ("--ro-bind", str(path), str(path))),
            *(decoy.binds(program, excluded) if decoy else ()),
            *(("--bind", str(report), f"/run/{report.name}") if report and not stays else ()),
            *("--bind", str(place.tree), ROOT),
            *(
                ("--ro-bind-data", str(pointer), f"{ROOT}/.git")
                if place.overlay or os.path.lexists(place.tree / ".git")
                else ()
            ),
            *(("--mqueue", QUEUES) if stays else ()),
            *("--remount-ro", "/", "--chdir", "/" if stays else ROOT),
            *(part for pair in environment.items() for part in ("--setenv", *pair)),
        ]
        packed = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        listed, status = files.enter_context(memory_file(packed)), files.enter_context(memory_file(b""))
        command = (
            found("bwrap") or "bwrap",
            "--args",
            str(listed),
            "--json-status-fd",
            str(status),
            "--",
            *argv,
        )
        yield _Boxed(command, (*given, *etc.values(), listed, status), status)


def _opened(files: ExitStack, path: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not every system has all of them
        return None
    files.callback(os.close, fd)
    return fd


def _file(content: int, path: str) -> tuple[str, ...]:
    """A file of the root, which is made read-only when it is complete: that saves a mount each."""
    return ("--perms", "0644", "--file", str(content), path)


def _root(limits: BoxLimits, rooms: Path | None) -> list[str]:
    """A root of its own: the system read-only, a few files of /etc, and sized places to write, or those in a folder."""
    parts = ["--ro-bind", "/usr", "/usr"]
    for name in MERGED:
        folder = Path("/", name)
        if folder.is_symlink():
            parts += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            parts += ["--ro-bind", str(folder), str(folder)]
    for name in ETC_FOLDERS:
        parts += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    # Root of the host owns the settings in /proc/sys in the box, too, and to write them takes no capability.
    parts += ["--proc", "/proc", "--remount-ro", "/proc"]
    parts += ["--dev", "/dev"]  # a writable tmpfs without a size, hence the remount
    for at, size in places(limits).items():
        if rooms is None:
            parts += ["--size", str(size), "--tmpfs", at]
        elif at != HOME:  # which is mounted in one of the others
            parts += ["--bind", f"{rooms}{at}", at]
    parts += ["--remount-ro", "/dev"]
    return parts


def places(limits: BoxLimits) -> dict[str, int]:
    """Where a command may write besides its worktree, and how many bytes."""
    shared = {"/dev/shm": limits.tmp_bytes, "/tmp": limits.tmp_bytes}  # noqa: S108 - inside
    return {**shared, "/run": MIB, HOMES: MIB, HOME: limits.home_bytes}


def _limits(limits: BoxLimits) -> str:
    """What the shell at the gate may not exceed any more, nor what it becomes. Shells differ in one letter."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = limits.open_files if hard == resource.RLIM_INFINITY else min(limits.open_files, hard)
    processes = f"{{ ulimit -p {limits.processes} 2>/dev/null || ulimit -u {limits.processes}; }}"
    sizes = f"ulimit -f {limits.file_bytes // ULIMIT_BLOCK} && ulimit -n {files} && ulimit -c 0"
    return f"{processes} && {sizes} || exit {REFUSED}; "


def _shown(paths: Sequence[Path]) -> list[Path]:
    """The paths to bind: what was asked for, and for a virtual environment the interpreter it rests on."""
    wanted: dict[Path, None] = {}
    for path in paths:
        wanted[path.absolute()] = None
        for base in _interpreter(path):
            wanted[base] = None
    return [path for path in wanted if not path.is_relative_to("/usr") and path.exists()]


def _interpreter(folder: Path) -> tuple[Path, ...]:
    """The prefix that a virtual environment's `home` names, as written and resolved."""
    try:
        lines = (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home":
            prefix = Path(value.strip()).parent
            return (prefix, prefix.resolve())
    return ()


def program_there(settings: HandSettings, name: str) -> bool:
    """Whether a command in the box finds a program of this name, before anything is set up in a worktree."""
    return shutil.which(name, path=environment_of(settings)["PATH"]) is not None
