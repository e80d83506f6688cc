"""The box: limits what a model-written command may see and do. Uses bubblewrap, or no sandbox if configured explicitly.

Starts one command in one worktree, and distinguishes a failed command from a box that could not start. The worktree's
`.git` is hidden: by a pointer to a decoy if there is one, else by an empty file.
"""

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Self

from fleet.core.base.ids import Sha
from fleet.errors import FleetError
from fleet.ports.agents import NO_EXTRAS, Dialogue, Extras
from worktrees.base.fs import create_file
from worktrees.base.process import (
    GATE,
    GATE_ITSELF,
    REFUSED,
    Finished,
    Launch,
    Starter,
    effect_error,
    memory_file,
    os_errors,
    run,
)
from worktrees.base.settings import MIB, BoxLimits, WorktreeSettings
from worktrees.base.turns import Turn, background
from worktrees.sandbox.channel import COPY
from worktrees.sandbox.launcher_main import UNMOUNTED
from worktrees.sandbox.overlay_mount import TAG, Manager, Overlay, mounting, this_manager
from worktrees.sandbox.resource_monitor import ResourceMonitor
from worktrees.sandbox.seccomp import filter_program

# ---- decoy -----------------------------------------------------------------------------------------------------------
# The git repository that a worker sees. Reading works as usual, and writes have no effect outside.
#
# It has a few small files per lease, the store's objects read-only, and one branch at the lease's base. The index is as
# large as the repository, so it is created inside the box when git is first used, from an index of the manager that the
# box shows. fleet never reads a worker's changes in a decoy, and removes them with the lease.


ROOT = "/repo"
BRANCH = "refs/heads/work"
PLACE = "/fleet/git"
OBJECTS = "/fleet/objects"
INDEX = "/fleet/index"
EXCLUDED = "/fleet/exclude"
PROGRAMS = "/fleet/bin"
POINTER = f"gitdir: {PLACE}\n".encode()
BEHIND = "fleet-behind"
"""This file exists while the index in the box is of another commit, near the base."""

FOLDERS = ("objects", "objects/info", "refs", "refs/heads")
SHA1 = 40  # digits of an id
MAX_ALTERNATES = 20

# Git compares only times and sizes: in the box, owners and inode numbers differ from those of the original index.
CONFIG = f"""\
[core]
\trepositoryFormatVersion = {{version}}
\tbare = false
\tfileMode = true
\tcheckStat = minimal
\ttrustCtime = false
\texcludesFile = {EXCLUDED}
[user]
\tname = worker
\temail = worker@localhost
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
SHA256 = "[extensions]\n\tobjectFormat = sha256\n"

PROGRAM = f"""\
#!/bin/sh
before=$IFS IFS=:
for folder in $PATH; do
    if [ "$folder" != {PROGRAMS} ] && [ -x "$folder/git" ]; then real=$folder/git; break; fi
done
IFS=$before
if [ ! -e {PLACE}/index ] && [ -n "$real" ]; then (
    new={PLACE}/index.$$
    export GIT_DIR={PLACE} GIT_WORK_TREE={ROOT} GIT_INDEX_FILE="$new"
    cp {INDEX} "$new" 2>/dev/null || : >{PLACE}/{BEHIND}
    [ ! -e {PLACE}/{BEHIND} ] || "$real" read-tree -m -i {BRANCH}
    ln "$new" {PLACE}/index
    rm -f "$new"
) >/dev/null 2>&1; fi
exec "${{real:-/usr/bin/git}}" "$@"
""".encode()


@dataclass(frozen=True, slots=True)
class Decoy:
    """The decoy of one lease, kept in a folder between commands. Without a folder, each command gets a new one."""

    folder: Path | None
    files: Mapping[str, bytes]
    objects: tuple[Path, ...]
    index: Path
    excluded: bytes

    def shown(self, size: int) -> Iterator[str | bytes]:
        """Return the bubblewrap arguments that show it, with file contents in place of descriptors."""
        if self.folder is not None:
            yield from ("--bind", str(self.folder), PLACE)
        else:
            yield from ("--size", str(size), "--tmpfs", PLACE)
            for name, content in self.files.items():
                yield from ("--file", content, f"{PLACE}/{name}")
        yield from ("--perms", "0755", "--file", PROGRAM, f"{PROGRAMS}/git")
        yield from ("--file", self.excluded, EXCLUDED)
        yield from ("--ro-bind-try", str(self.index), INDEX)
        for number, folder in enumerate(self.objects):
            yield from ("--ro-bind", str(folder), f"{OBJECTS}/{number}")
            if (folder / "info/alternates").is_file():
                yield from ("--dev-bind", os.devnull, f"{OBJECTS}/{number}/info/alternates")  # the decoy lists them all

    def make(self) -> None:
        """Create it in its folder if it is missing."""
        if self.folder is None:
            return
        with os_errors("can't create a repository for a worker"), suppress(FileExistsError):
            os.makedirs(self.folder)  # noqa: PTH103 - plain names: runs for each lease
            for name in FOLDERS:
                os.mkdir(f"{self.folder}/{name}")  # noqa: PTH102
            for name, content in self.files.items():
                create_file(f"{self.folder}/{name}", content)


@dataclass(frozen=True, slots=True)
class Decoys:
    """Shared parts of all decoys of one store."""

    objects: tuple[Path, ...]
    shallow: bytes
    excluded: bytes

    @classmethod
    def of(cls, git_dir: Path) -> Self:
        objects = tuple(_with_alternates(git_dir / "objects"))
        return cls(objects, _content(git_dir / "shallow"), _content(git_dir / "info/exclude"))

    def with_objects(self, objects: tuple[Path, ...]) -> "Decoys":
        """Return a copy with other objects."""
        return replace(self, objects=objects)

    def decoy(self, folder: Path, base: Sha, *, index: Path, exact: bool) -> Decoy:
        """Create a decoy in `folder`. `index` is the manager's: of `base` if `exact`, else of a commit near it."""
        config = CONFIG.format(version=0) if len(base) == SHA1 else CONFIG.format(version=1) + SHA256
        alternates = "".join(f"{OBJECTS}/{number}\n" for number in range(len(self.objects)))
        files = {
            "HEAD": f"ref: {BRANCH}\n".encode(),
            BRANCH: f"{base}\n".encode(),
            "config": config.encode(),
            "objects/info/alternates": alternates.encode(),
        }
        if self.shallow:
            files["shallow"] = self.shallow
        if not exact:
            files[BEHIND] = b""
        return Decoy(folder, files, self.objects, index, self.excluded)


def _with_alternates(objects: Path) -> list[Path]:
    """Return a folder of objects and its alternates, as git resolves them."""
    folders = [objects]
    for folder in folders:
        for line in _content(folder / "info/alternates").splitlines():
            other = Path(os.path.normpath(folder / os.fsdecode(line)))
            if line[:1] not in {b"#", b'"', b""} and other not in folders and other.is_dir():
                folders.append(other)
        if len(folders) > MAX_ALTERNATES:
            break
    return folders


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


# ---- box -------------------------------------------------------------------------------------------------------------


MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC_FOLDERS = ("alternatives", "ld.so.conf.d", "ssl")
ETC_OF_TOOLS = ("java", "java-*-openjdk", "php", "maven/m2.conf", "maven/logging")
"""Debian's Java, PHP and Maven do not start without these. Maven's settings stay out, because they may contain
passwords."""
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


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a command: a worktree, a scratch folder, and the name in the tag of its processes."""

    tree: Path
    scratch: Path
    name: str
    overlay: Overlay | None = None
    """Whether the worktree is mounted at `tree` for each command. Without an overlay it is a normal folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    decoy: Decoy | None = None
    """The git repository that commands see, if any."""

    @property
    def own_folder(self) -> Path:
        """The folder that only this worktree uses."""
        return self.tree if self.overlay is None else self.overlay.upper


@dataclass(frozen=True, slots=True)
class Box:
    """Runs commands. All worktrees share one."""

    settings: WorktreeSettings
    manager: Manager = field(default_factory=this_manager)
    starter: Starter | None = field(default=None, compare=False)

    def root(self, place: Place) -> str:
        """The worktree's path inside the box."""
        return ROOT if self.settings.box.sandbox == "bubblewrap" else str(place.tree)

    def extended(self, extras: Extras) -> "Box":
        """Return a box that also shows and allows these."""
        if extras == NO_EXTRAS:
            return self
        box = self.settings.box
        extended = box.model_copy(
            update={
                "read_only": (*box.read_only, *extras.read_only),
                "path": (*extras.path, *box.path),
                "environment": {**box.environment, **extras.environment},
                "network": box.network if extras.network is None else extras.network,
            }
        )
        return replace(self, settings=replace(self.settings, box=extended))

    def shell(self, script: str) -> tuple[str, ...]:
        """Return the command line to run a script in this machine's shell."""
        return ("bash" if shutil.which("bash") else "sh", "-c", script)

    def copying(self, command: str, files: str, report: Path) -> tuple[str, ...]:
        """Return the command line to run a script and then copy its result files into the pipe for a report."""
        shell = self.shell(command)[0]
        return (shell, "-c", COPY, shell, command, files, self._path(report))

    def _path(self, report: Path) -> str:
        return f"/run/{report.name}" if self.settings.box.sandbox == "bubblewrap" else str(report)

    async def run(
        self,
        place: Place,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cap: int,
        data: bytes = b"",
        merged: bool = True,
        report: Path | None = None,
        asks_pytest: bool = False,
        limiter: Turn | None = None,
        dialogue: Dialogue | None = None,
    ) -> Finished:
        """Run a command to its end. Raises `EffectError` if its box could not start.

        The box shows the pipe for a `report`. `asks_pytest` makes pytest write its report into it. The `limiter` is
        held while the command runs, not while its box is prepared. A `dialogue` replaces `data`.
        """
        with ExitStack() as files:
            input_fd = files.enter_context(memory_file(data)) if data else None
            fds = () if input_fd is None else (input_fd,)
            source = GATE_ITSELF if dialogue else NO_INPUT if input_fd is None else f"/proc/self/fd/{input_fd}"
            environment = self._environment(place, report if asks_pytest else None)
            if self.settings.box.sandbox == "none":
                launch = Launch(
                    (*_gate(source), *argv),
                    bare_environment(self.settings, place.scratch, environment),
                    cwd=place.tree,
                    pass_fds=fds,
                    merged=merged,
                    gated=True,
                    limiter=limiter,
                    dialogue=dialogue,
                )
                return await run(launch, timeout_s=timeout_s, cap=cap)
            gated = (*_gate(source, before=_set_limits(self.settings.limits)), *argv)
            if place.decoy:
                place.decoy.make()
            boxed = files.enter_context(_boxed(self.settings, place, gated, environment, report))
            monitor = ResourceMonitor(self.settings.limits, boxed.init, *_tenant_folders(place))
            mount = place.overlay.mount_options() if place.overlay else nullcontext("")
            async with mount as options, background(monitor.watch):
                launch = self._launch(place, boxed, environment[TAG], options)
                launch = replace(launch, pass_fds=(*boxed.fds, *fds), merged=merged, limiter=limiter, dialogue=dialogue)
                done = await run(launch, timeout_s=timeout_s, cap=cap)
            if not done.timed_out and not monitor.verdict and not boxed.reports_exit():
                output = (done.stderr or done.stdout).decode("utf-8", "replace")[-2000:]
                raise effect_error("the sandbox could not be started", output)
        done = replace(done, peak_bytes=monitor.peak)
        if not monitor.verdict:
            return done
        note = f"\n[ended by the sandbox: {monitor.verdict}]\n".encode()
        stream = "stdout" if merged else "stderr"
        return replace(done, exit_code=-signal.SIGKILL, **{stream: getattr(done, stream) + note})

    def _environment(self, place: Place, report: Path | None) -> dict[str, str]:
        environment = {**box_environment(self.settings), **place.environment, TAG: self.manager.tag(place.name)}
        if report is not None:
            options = f"{environment.get('PYTEST_ADDOPTS', '')} --junitxml={self._path(report)} -o junit_family=xunit1"
            environment["PYTEST_ADDOPTS"] = options.strip()
        if place.decoy and self.settings.box.sandbox == "bubblewrap":
            environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
        return environment

    def _launch(self, place: Place, boxed: "_Boxed", tag: str, options: str) -> Launch:
        before = mounting(options)
        lacks_a_path = any(
            Path(path).is_relative_to(UNMOUNTED) for path in self.settings.box.read_only
        )  # the starter does
        return Launch(
            boxed.command,
            {"PATH": os.pathsep.join(SYSTEM_PATH), TAG: tag},
            before,
            overlay=options,
            starter=self.starter if before and not lacks_a_path else None,
            cwd=place.overlay.home if place.overlay else Path("/"),
            gated=True,
            init=boxed.init,
        )


def require_bubblewrap(settings: WorktreeSettings) -> None:
    """Raise `FleetError` if the configuration requires bubblewrap and it is not installed."""
    if settings.box.sandbox == "bubblewrap" and shutil.which("bwrap") is None:
        raise FleetError(
            "bubblewrap is not installed, and workers run commands that a model wrote",
            hint="apt-get install bubblewrap, or use --sandbox none to run without a sandbox",
        )


def _tenant_folders(place: Place) -> tuple[tuple[Path, ...], bool]:
    """Return the folders that a command may write to on disk, and whether all their content is the tenant's."""
    if place.overlay is not None:
        return (place.overlay.upper.parent,), True
    kept = place.decoy.folder if place.decoy else None
    return (place.tree, *((kept,) if kept else ())), False


def _gate(source: str, *, before: str = "") -> tuple[str, ...]:
    """Return the command line of a gate whose command gets this standard input."""
    return ("sh", "-c", f"{before}{GATE}", "gate", source)


@dataclass(frozen=True, slots=True)
class _Boxed:
    """A bubblewrap command line, the descriptors it needs, and the descriptor it reports to."""

    command: tuple[str, ...]
    fds: tuple[int, ...]
    status: int

    def init(self) -> int | None:
        """The first process in the box."""
        return next((event["child-pid"] for event in self._events() if "child-pid" in event), None)

    def reports_exit(self) -> bool:
        """Whether bubblewrap got far enough to see the command end."""
        return any("exit-code" in event for event in self._events())

    def _events(self) -> list[dict[str, int]]:
        lines = os.pread(self.status, 4096, 0).decode("utf-8", "replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@contextmanager
def _boxed(
    settings: WorktreeSettings, place: Place, argv: Sequence[str], environment: Mapping[str, str], report: Path | None
) -> Iterator[_Boxed]:
    with ExitStack() as files:
        decoy = place.decoy
        filter_bytes = (filter_program() if settings.box.syscall_filter else None) or b""
        etc = {name: fd for name in ETC_FILES if (fd := _opened(files, f"/etc/{name}")) is not None}
        has_git = place.overlay or os.path.lexists(place.tree / ".git")
        network = ("--ro-bind-try", "/etc/hosts", "/etc/hosts", "--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf")
        arguments: list[str | bytes] = [
            *NAMESPACES,
            *(("--seccomp", filter_bytes) if filter_bytes else ()),
            *(() if settings.box.network else ("--unshare-net",)),
            *_root(settings.limits),
            *_file(PASSWD, "/etc/passwd"),
            *_file(GROUP, "/etc/group"),
            *(part for name, content in etc.items() for part in _file(str(content), f"/etc/{name}")),
            *(network if settings.box.network else _file(HOSTS, "/etc/hosts")),
            *(part for path in _shown_paths(settings.box.read_only) for part in ("--ro-bind", str(path), str(path))),
            *(decoy.shown(settings.limits.tmp_bytes) if decoy else ()),
            *(("--bind", str(report), f"/run/{report.name}") if report else ()),
            *("--bind", str(place.tree), ROOT),
            *(("--ro-bind-data", POINTER if decoy else b"", f"{ROOT}/.git") if has_git else ()),
            *("--remount-ro", "/", "--chdir", ROOT),
            *(part for pair in environment.items() for part in ("--setenv", *pair)),
        ]
        fds = [files.enter_context(memory_file(content)) for content in arguments if isinstance(content, bytes)]
        numbers = iter(fds)
        words = (str(next(numbers)) if isinstance(part, bytes) else part for part in arguments)
        packed = os.fsencode("\0".join((*words, "")))
        listed, status = files.enter_context(memory_file(packed)), files.enter_context(memory_file(b""))
        bwrap = (shutil.which("bwrap") or "bwrap", "--args", str(listed), "--json-status-fd", str(status), "--")
        yield _Boxed((*bwrap, *argv), (*fds, *etc.values(), listed, status), status)


def _opened(files: ExitStack, path: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not every system has all of them
        return None
    files.callback(os.close, fd)
    return fd


def _file(content: str | bytes, path: str) -> tuple[str | bytes, ...]:
    """Return a file of the root. The root becomes read-only when it is complete, which saves a mount for each file."""
    return ("--perms", "0644", "--file", content, path)


@cache
def _root(limits: BoxLimits) -> tuple[str, ...]:
    """Return a new root: the system read-only, a few files of /etc, and writable folders with a size.

    All boxes of a process share it: reading the machine's folders took a tenth of the time of an attempt.
    """
    parts = ["--ro-bind", "/usr", "/usr"]
    for name in MERGED:
        folder = Path("/", name)
        if folder.is_symlink():
            parts += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            parts += ["--ro-bind", str(folder), str(folder)]
    for name in ETC_FOLDERS:
        parts += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in sorted(str(path) for pattern in ETC_OF_TOOLS for path in Path("/etc").glob(pattern)):
        parts += ["--ro-bind-try", path, path]
    # The host's root also owns /proc/sys in the box, and can write to it without a capability.
    parts += ["--proc", "/proc", "--remount-ro", "/proc"]
    parts += ["--dev", "/dev"]  # a writable tmpfs without a size, hence the remount
    writable = {"/dev/shm": limits.tmp_bytes, "/tmp": limits.tmp_bytes, "/run": MIB, "/home": MIB}  # noqa: S108 - inside
    for path, size in (*writable.items(), (HOME, limits.home_bytes)):
        parts += ["--size", str(size), "--tmpfs", path]
    return (*parts, "--remount-ro", "/dev")


def _set_limits(limits: BoxLimits) -> str:
    """Return shell commands that set limits at the gate, before exec. Shells differ in one letter."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = limits.open_files if hard == resource.RLIM_INFINITY else min(limits.open_files, hard)
    processes = f"{{ ulimit -p {limits.processes} 2>/dev/null || ulimit -u {limits.processes}; }}"
    sizes = f"ulimit -f {limits.file_bytes // ULIMIT_BLOCK} && ulimit -n {files} && ulimit -c 0"
    return f"{processes} && {sizes} || exit {REFUSED}; "


def _shown_paths(paths: Sequence[str]) -> list[Path]:
    """Return the paths to bind: the given ones, and the interpreter of a virtual environment."""
    wanted = dict.fromkeys(each for path in map(Path, paths) for each in (path.absolute(), *_interpreter(path)))
    return [path for path in wanted if not path.is_relative_to("/usr") and path.exists()]


def _interpreter(folder: Path) -> tuple[Path, ...]:
    """Return the prefix in a virtual environment's `home`, as written and resolved."""
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


# ---- environment -----------------------------------------------------------------------------------------------------
# The environment of a command: its variables inside the box, or without one, and its programs.


HOME = "/home/worker"
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
HIGHEST_PORT = 65_536


def box_environment(settings: WorktreeSettings) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join((*settings.box.path, *SYSTEM_PATH)),
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - inside the box
        "PYTHONDONTWRITEBYTECODE": "1",
        **settings.box.environment,
    }


def bare_environment(settings: WorktreeSettings, scratch: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the same environment without a sandbox, with a home and a temporary folder beside the worktree."""
    home, temporary = scratch / "home", scratch / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    return {**environment, "HOME": str(home), "TMPDIR": str(temporary), **settings.box.environment}


def port_environment(settings: WorktreeSettings, number: int) -> dict[str, str]:
    """Return the first port of a worktree's range. Numbers beyond the last range start over."""
    ranges = max(1, (HIGHEST_PORT - settings.worktrees.first_port) // settings.worktrees.ports)
    return {"FLEET_PORT": str(settings.worktrees.first_port + (number - 1) % ranges * settings.worktrees.ports)}


def has_program(settings: WorktreeSettings, name: str) -> bool:
    """Whether a command in the box finds this program, before the setup command runs."""
    return shutil.which(name, path=box_environment(settings)["PATH"]) is not None
