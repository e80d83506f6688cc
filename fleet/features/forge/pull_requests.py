"""`fleet pr`: the result of a run as a draft pull request, or as a stack of them.

A branch is pushed, then its pull request is looked for by that branch, and opened or updated. A call can be
repeated, and continues where another one was killed; the forge never has two.
"""

import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from dashboards.text.formats import listed
from dashboards.text.safe import safe
from fleet.core.base.forges import ForgeKind
from fleet.core.base.ids import Sha, SubtaskId, run_refs
from fleet.core.facts.facts import IssueSource
from fleet.errors import FleetError, UsageError
from fleet.features.forge.forge import PREFIXES, Draft, Forge, Place, Pull, issue_reference, place_of_remote
from fleet.features.forge.program import ForgeError, open_forge, redact
from fleet.features.forge.pulls_view import Done, PullsView, PullView
from fleet.features.parts import load_part
from fleet.features.table import FEATURES, Feature
from fleet.read.report_data import LandedSubtask, ReportData, report_data
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.crash_points import reached
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from worktrees.git.object_format import committer_of, without_closing_words
from worktrees.store.integrator import StoreIntegrator, landed_since
from worktrees.store.replay import Replay, commits_above
from worktrees.store.store import Store, open_store
from worktrees.target.publish import Remote, RemoteMovedError, commit_of, remote_of, remote_urls
from worktrees.target.target import Target, inspect

# ---- pull text -------------------------------------------------------------------------------------------------------
# What a pull request says: parts of the run's report, and what a reviewer of this one needs besides.
#
# Everything that a model or another person wrote is escaped by the report's Markdown. A token never gets in, nor the
# path of the repository on this machine.


TITLE = 120  # characters
LONGEST = 60_000  # characters; GitHub takes 65,536
MOST = 40  # subtasks that are named
PARTS = ("landed", "proof", "human", "review", "cost", "undo")
"""Sections of the report, in the order of a reviewer's questions."""
BEGIN, END = "<!-- fleet:begin -->", "<!-- fleet:end -->"
"""Around what the fleet writes; a person's text beside it stays."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one pull request is about."""

    area: SubtaskId | None = None
    """The area of the plan; None: the whole result, or what no area did."""
    title: str = ""
    """The area's title."""
    subtasks: frozenset[SubtaskId] | None = None
    """Those whose commits it brings; None: all."""
    number: int = 1
    of: int = 1
    tested: bool = True
    """Whether the run tested the tree of its last commit."""


def pull_title(data: ReportData, issue: IssueSource | None, layer: Layer) -> str:
    title = issue.title if issue is not None else next(iter(data.goal.strip().splitlines()), "") or f"Run {data.run}"
    if layer.of > 1:
        title = f"{layer.title or 'The rest'} ({layer.number} of {layer.of}: {title})"
    return redact(safe(without_closing_words(title.lstrip("# ")), limit=TITLE))


def pull_body(data: ReportData, issue: IssueSource | None, place: Place, layer: Layer) -> str:
    """The text between the marks, with them."""
    data = _of_layer(data, layer)
    lead, first = _lead(data, issue, layer), _first(data, layer)
    text = redact(find_proposal()(data, lead=lead, first=first, parts=PARTS))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n\n… The rest is in the report: `fleet report {data.run}`."
    return "\n\n".join(filter(None, (BEGIN, _closing(data, issue, place, layer), text, END)))


def find_proposal(features: Mapping[str, Feature] = FEATURES) -> Callable[..., str]:
    """What writes parts of a run's report as Markdown, which is a feature of its own."""
    for feature in features.values():
        if feature.proposes:
            return cast("Callable[..., str]", load_part(feature.proposes))
    raise FleetError("fleet pr needs fleet report, which is not part of this fleet")


def with_body(existing: str, body: str) -> str:
    """The text of a pull request with our part replaced; what a person wrote around it stays."""
    before, begin, rest = existing.replace("\r\n", "\n").partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{body}{after}" if begin and end else body


def _closing(data: ReportData, issue: IssueSource | None, place: Place, layer: Layer) -> str:
    """The line that connects it with its issue: merging closes an issue whose run landed everything."""
    reference = issue_reference(issue.reference) if issue is not None else None
    if issue is None or reference is None:
        return ""
    near = reference.place == place
    name = f"#{reference.number}" if near else f"{reference.place.repo}#{reference.number}"
    if not near and (reference.place.kind, reference.place.host) != (place.kind, place.host):
        return f"For {issue.url}"
    done = data.state == "landed" and layer.number == layer.of
    return f"Closes {name}" if done else f"For {name}"


def _lead(data: ReportData, issue: IssueSource | None, layer: Layer) -> Sequence[str]:
    goal = f"The epic is {issue.reference}: {issue.title}" if issue is not None else f"The epic: {data.goal}"
    lead = [safe(goal, limit=1_000)]
    if layer.of > 1:
        lead.append(f"This is number {layer.number} of {layer.of} in a stack: each goes into the one before.")
    if data.simulated:
        lead.append("The model was simulated: answers and prices are scripted, everything else is real.")
    return lead


def _first(data: ReportData, layer: Layer) -> Sequence[str]:
    """What deserves a closer look than the rest."""
    found: list[str] = []
    if not layer.tested:
        found.append(
            "The run tested its commits in another order: the tree of this branch alone was not tested there, so "
            "wait for CI. The last pull request of the stack has the tested tree."
        )
    if again := [part.id for part in data.landed if part.attempts > 1]:
        found.append(f"These landed only after more than one attempt: {listed(again, MOST)}.")
    widest = sorted(data.landed, key=lambda part: -part.files)[:3]
    if len(data.landed) > len(widest):
        files = ", ".join(f"{part.id} ({part.files})" for part in widest)
        found.append(f"These changed the most files: {files}.")
    if data.open:
        names = listed([part.id for part in data.open], MOST)
        found.append(f"Not everything landed: {names}. The table below says why.")
    found.append("No person has read the code that is proposed here, unless they say so in this conversation.")
    return found


def _of_layer(data: ReportData, layer: Layer) -> ReportData:
    """The report of one layer: its subtasks alone. Costs and what is open are the whole run's."""
    warnings = [text.replace(data.repository, "the repository") for text in data.warnings]
    data = replace(data, warnings=warnings, repository="")
    if layer.subtasks is None:
        return data
    landed: list[LandedSubtask] = [part for part in data.landed if part.id in layer.subtasks]
    criteria = [each for each in data.proof.criteria if each.subtask in layer.subtasks]
    return replace(data, landed=landed, proof=replace(data.proof, criteria=criteria))


# ---- pull requests ---------------------------------------------------------------------------------------------------


# ---- stack -----------------------------------------------------------------------------------------------------------
# The commits of a result in pieces, each on the one before: one for each area of the plan.
#
# The commits stay in their order within an area. Where areas landed in turns, their commits are put in another order,
# by merges without a checkout; areas that do not come apart that way stay together. The last piece always has the
# tree of the result.


FLEET = ("fleet", "fleet@localhost")  # the committer of what is put in another order


@dataclass(frozen=True, slots=True)
class Piece:
    """A branch of a remote, and what it brings."""

    branch: str
    commit: Sha
    commits: int
    layer: Layer


@dataclass(frozen=True, slots=True)
class Stacker:
    """The result of a run at `tip`."""

    run: RunSnapshot
    store: Store
    tip: Sha

    def whole(self) -> Piece:
        """All of it in one."""
        run = self.run
        return Piece(run.result.branch, self.tip, run.result.commits, Layer())

    async def pieces(self) -> Sequence[Piece]:
        """One for each area, as far as they come apart."""
        run = self.run
        integrator = StoreIntegrator(self.store, committer_of(*FLEET))
        commits = await commits_above(integrator, run.base, self.tip)
        if commits is None:
            raise UsageError(f"{run.result.branch} has a merge commit", hint="propose it without --stack")
        members = await landed_since(self.store.git, run.run, old=run.base, tip=self.tip)
        subtask_of = {member.commit: member.subtask for member in members}
        groups = _groups([(commit, self._area_of(subtask_of.get(commit))) for commit in commits])
        while True:
            tips = await self._tips(integrator, groups)
            if tips is not None:
                break
            groups = [*groups[:-2], _joined(groups[-2], groups[-1], commits)]
        return self._cut(groups, tips, commits, subtask_of)

    def _area_of(self, subtask: SubtaskId | None) -> SubtaskId | None:
        """The outermost area that a subtask is in."""
        found = None
        while subtask is not None and self.run.has_subtask(subtask):
            area = self.run.area_of(subtask)
            found = area if area is not None else found
            subtask = area
        return found

    async def _tips(self, integrator: StoreIntegrator, groups: "Sequence[Group]") -> list[Sha] | None:
        """The last commit of each group, each group on the one before; None where they do not fit like that.

        Copies are pinned, so that the same result always gives the same commits.
        """
        tip, tips = self.run.base, list[Sha]()
        for number, group in enumerate(groups, start=1):
            pin = f"{run_refs(self.run.run)}/stack/{self.tip}/{len(groups)}.{number}"
            pinned = await self.store.git.sha(pin)
            if pinned is None:
                replayed = await Replay(integrator).onto(tip, group.commits)
                if replayed.failure is not None:
                    return None
                pinned = replayed.tip
            tips.append(pinned)
            tip = pinned
        repository = integrator.repository
        if (await repository.commit(tip)).tree != (await repository.commit(self.tip)).tree:
            return None if len(groups) > 1 else [self.tip]
        for number, pinned in enumerate(tips, start=1):
            await self.store.git(
                "update-ref", f"{run_refs(self.run.run)}/stack/{self.tip}/{len(tips)}.{number}", pinned
            )
        return tips

    def _cut(
        self,
        groups: "Sequence[Group]",
        tips: Sequence[Sha],
        commits: Sequence[Sha],
        subtask_of: dict[Sha, SubtaskId],
    ) -> list[Piece]:
        run, last = self.run, len(groups)
        if last == 1:
            return [Piece(run.result.branch, self.tip, len(commits), Layer())]
        pieces = []
        for number, (group, tip) in enumerate(zip(groups, tips, strict=True), start=1):
            spec = run.plan.subtask(group.area) if group.area is not None else None
            layer = Layer(
                area=group.area,
                title=spec.title if spec is not None else "What no area did",
                subtasks=frozenset(subtask_of[commit] for commit in group.commits if commit in subtask_of),
                number=number,
                of=last,
                tested=tip in commits or number == last,
            )
            branch = f"{run.result.branch}.{number}-{_word(group.area or 'rest')}"
            pieces.append(Piece(branch, tip, len(group.commits), layer))
        return pieces


@dataclass(frozen=True, slots=True)
class Group:
    """Commits of one area, in the order in which they landed."""

    area: SubtaskId | None
    commits: tuple[Sha, ...]


def _groups(landed: Sequence[tuple[Sha, SubtaskId | None]]) -> list[Group]:
    """Groundwork that landed before any area, then each area, then what no area did."""
    areas = list(dict.fromkeys(area for _, area in landed if area is not None))
    first = next((index for index, (_, area) in enumerate(landed) if area is not None), len(landed))
    ground = tuple(commit for commit, _ in landed[:first])
    rest = tuple(commit for commit, area in landed[first:] if area is None)
    of_area = [Group(area, tuple(commit for commit, its in landed if its == area)) for area in areas]
    return [group for group in (Group(None, ground), *of_area, Group(None, rest)) if group.commits]


def _word(area: str) -> str:
    """The name of an area in the name of a branch: no dots, of which git allows only some."""
    return re.sub(r"[^A-Za-z0-9]+", "-", area).strip("-")[:40] or "area"


def _joined(one: Group, other: Group, order: Sequence[Sha]) -> Group:
    both = {*one.commits, *other.commits}
    area = one.area if one.area == other.area else None
    return Group(area, tuple(commit for commit in order if commit in both))


# ---- pull requests ---------------------------------------------------------------------------------------------------


USUAL = "origin"
BRANCH = re.compile(r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|[./]$))\w[\w./+@-]{0,200}")
"""The name of a branch, never an option or a part of a refspec."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asks for."""

    into: str | None = None
    """The branch that it should go into; None: the one the run started from if the remote has it, else the default."""
    remote: str | None = None
    kind: ForgeKind | None = None
    """The forge, where the name of its host does not say it."""
    stack: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """From a run to its forge."""

    run: RunSnapshot
    data: ReportData
    remote: Remote
    forge: Forge

    @property
    def place(self) -> Place:
        return self.forge.place


@dataclass(frozen=True, slots=True)
class PullRequests:
    """The pull requests of one run."""

    folder: RunFolder
    state_dir: Path
    environ: Mapping[str, str]
    wanted: Wanted = Wanted()
    say: Callable[[str], None] = field(default=lambda _: None)
    """Takes a line about what is under way."""

    async def propose(self) -> PullsView:
        """Push, and open or update. Raises `FleetError`; what was done until then is found again by the next call."""
        run, data = self._read()
        target = await inspect(Path(run.figures.repository))
        tip = await commit_of(target, run.result.branch)
        store = await open_store(self.state_dir, target, tip, run.base)
        try:
            name, place = await self._place(run, target)
            remote = await remote_of(target, store.git, name, self.environ)
            return await self._propose(Way(run, data, remote, open_forge(place, self.environ)), store, tip)
        finally:
            await store.close()

    async def _propose(self, way: Way, store: Store, tip: Sha) -> PullsView:
        into = await self._into(way)
        pieces = await self._pieces(way.run, store, tip)
        made, commands, dry = list[PullView](), list[str](), self.wanted.dry_run
        for piece in pieces:
            base = made[-1].branch if made else into
            draft = Draft(
                title=pull_title(way.data, way.run.issue, piece.layer),
                body=pull_body(way.data, way.run.issue, way.place, piece.layer),
                head_branch=piece.branch,
                base_branch=base,
            )
            commands.append(shlex.join(("git", "push", way.remote.name, f"{piece.commit}:refs/heads/{piece.branch}")))
            if not dry:
                await self._push(way.remote, piece)
            made.append(view := await self._pull(way.forge, piece, draft))
            if view.done != "unchanged":
                commands.append(shlex.join((way.place.kind.program, *way.forge.opening(draft))))
        shown = tuple(commands) if dry else ()
        return PullsView(way.run.run, str(way.place), way.remote.name, dry, tuple(made), shown)

    def _read(self) -> tuple[RunSnapshot, ReportData]:
        """The run, if it has something to propose."""
        run = just_after(self.folder.state())
        if run.relanding is not None:
            raise UsageError(f"{run.run} lands a result again", hint=f"fleet pr {run.relanding.run}")
        if run.figures.rehearsal:
            raise UsageError(f"{run.run} is a rehearsal, which has nothing to propose")
        if not run.figures.is_published:
            raise UsageError(f"nothing of {self.folder.run} has landed", hint="there is nothing to propose")
        with Journal(self.folder.journal) as journal:
            data = report_data((fact for _, fact in journal.each()), time.time(), alive=self.folder.alive)
        if data is None:
            raise FleetError(f"{self.folder.run} can't be read")
        return run, data

    async def _pieces(self, run: RunSnapshot, store: Store, tip: Sha) -> Sequence[Piece]:
        stacker = Stacker(run, store, tip)
        pieces = await stacker.pieces() if self.wanted.stack else [stacker.whole()]
        if self.wanted.stack and len(pieces) == 1:
            self.say(f"{run.run} has no areas that can be told apart: one pull request for all of it")
        return pieces

    # ---- where

    async def _place(self, run: RunSnapshot, target: Target) -> tuple[str, Place]:
        """The remote and what it is on the forge: the named one, that of the run's issue, `origin`, or the first."""
        urls, named = await remote_urls(target), self.wanted.remote
        if named is not None and named not in urls:
            raise UsageError(f"the repository has no remote {named!r}", hint=f"it has: {', '.join(urls) or 'none'}")
        places = {name: place_of_remote(url, self.wanted.kind) for name, url in urls.items() if named in {None, name}}
        known = {name: place for name, place in places.items() if place is not None}
        issue = issue_reference(run.issue.reference) if run.issue is not None else None
        of_issue = [name for name, place in known.items() if issue is not None and place == issue.place]
        candidates = [*of_issue, *([USUAL] if USUAL in known else []), *known]
        if not candidates:
            known_forges = " or ".join(f"--forge {prefix}" for prefix in PREFIXES)
            hint = f"add one (git remote add origin URL), or say what its host runs: {known_forges}"
            raise UsageError("no remote of the repository is on a forge that is known by its name", hint=hint)
        return candidates[0], known[candidates[0]]

    async def _into(self, way: Way) -> str:
        """The branch that it should go into."""
        wanted, ref = self.wanted.into, f"{run_refs(way.run.run)}/into"
        if wanted is not None:
            if not BRANCH.fullmatch(wanted):
                raise UsageError(f"{wanted!r} is not the name of a branch")
            if await way.remote.fetch(wanted, ref) is None:
                hint = "push it first, or name another with --into"
                raise UsageError(f"{way.remote.name} has no branch {wanted!r}", hint=hint)
            return wanted
        begun = way.run.base_name
        if BRANCH.fullmatch(begun) and await way.remote.fetch(begun, ref) is not None:
            return begun
        default = await way.forge.default_branch()
        if not BRANCH.fullmatch(default):
            raise UsageError(f"{way.place} has no default branch", hint="name one with --into")
        return default

    async def _push(self, remote: Remote, piece: Piece) -> None:
        self.say(f"pushing {piece.branch} to {remote.name}")
        try:
            await remote.push(piece.commit, piece.branch)
        except RemoteMovedError:
            hint = f"someone else pushed to it: git fetch {remote.name} {piece.branch} shows what"
            raise FleetError(
                f"{remote.name} has commits on {piece.branch} that the run does not have", hint=hint
            ) from None

    # ---- what

    async def _pull(self, forge: Forge, piece: Piece, draft: Draft) -> PullView:
        """The pull request of a branch: found, or opened; then as it should be."""
        pulls = await forge.pulls_of(draft.head_branch)
        pull = next((each for each in pulls if each.state == "open"), None)
        if pull is None:
            over = next((each for each in pulls if each.head_sha == piece.commit), None)
            if over is not None and over.state == "merged":
                return _view(over, "merged", piece, draft)
            if over is not None:
                hint = f"open it again there, or delete the branch {draft.head_branch} of the remote"
                raise FleetError(f"{over.url} was closed by a person", hint=hint)
            if self.wanted.dry_run:
                return _view(None, "to open", piece, draft)
            self.say(f"opening a draft for {draft.head_branch}")
            opened = await self._open(forge, draft)
            reached("a pull request is open, and not recorded")
            return _view(opened, "opened", piece, draft)
        body = with_body(pull.body, draft.body)
        if (pull.body.replace("\r\n", "\n").strip(), pull.base_branch) == (body.strip(), draft.base_branch):
            return _view(pull, "unchanged", piece, draft)
        if self.wanted.dry_run:
            return _view(pull, "to update", piece, draft)
        await forge.edit_pull(pull.number, body=body, base_branch=draft.base_branch)
        return _view(pull, "updated", piece, draft)

    async def _open(self, forge: Forge, draft: Draft) -> Pull:
        """Open it. Where the program fails, it may have done it nevertheless, or another one was faster."""
        try:
            return await forge.open_pull(draft)
        except ForgeError:
            pulls = await forge.pulls_of(draft.head_branch)
            pull = next((each for each in pulls if each.state == "open"), None)
            if pull is None:
                raise
            return pull


def _view(pull: Pull | None, done: Done, piece: Piece, draft: Draft) -> PullView:
    return PullView(
        number=pull.number if pull is not None else None,
        url=redact(safe(pull.url)) if pull is not None else "",
        done=done,
        branch=piece.branch,
        into=draft.base_branch,
        commit=piece.commit,
        commits=piece.commits,
        area=piece.layer.area,
        tested=piece.layer.tested,
        title=draft.title,
        body=draft.body,
    )
