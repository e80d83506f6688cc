"""The GitLab client. It only uses `glab api`, which takes texts on standard input and does not need a checkout."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, TypeAdapter

from fleet.features.forge.forge import Check, CheckState, Comment, Draft, ForgePlace, Issue, Pull, PullState, Thread
from fleet.features.forge.program import NotFoundError, Program

PAGE = 100  # the maximum page size of the API
MOST_PAGES = 20
LOG_CHARACTERS = 60_000
WRITER = 30  # GitLab's access level of a developer
DRAFT = "Draft: "  # GitLab's mark in the title of a draft


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Account(_Answer):
    id: int = 0
    username: str = ""


class _Position(_Answer):
    new_path: str | None = None
    old_path: str | None = None
    new_line: int | None = None


class _Note(_Answer):
    id: int
    body: str
    author: _Account | None = None
    created_at: str = ""
    system: bool = False
    resolvable: bool = False
    resolved: bool = False
    position: _Position | None = None

    def value(self, me: str) -> Comment:
        author = self.author.username if self.author is not None else ""
        mine = bool(author) and author == me
        return Comment(id=str(self.id), author=author, body=self.body, created_at=self.created_at, is_mine=mine)


class _Discussion(_Answer):
    id: str
    notes: tuple[_Note, ...] = ()


class _Issue(_Answer):
    iid: int
    title: str
    description: str | None = None
    web_url: str
    state: str
    author: _Account | None = None
    labels: tuple[str, ...] = ()


class _Merge(_Answer):
    iid: int
    web_url: str
    title: str
    description: str | None = None
    state: str
    draft: bool = False
    source_branch: str
    target_branch: str
    sha: str | None = None
    author: _Account | None = None
    labels: tuple[str, ...] = ()
    source_project_id: int | None = None
    target_project_id: int | None = None

    def value(self) -> Pull:
        states: dict[str, PullState] = {"opened": "open", "merged": "merged"}
        return Pull(
            number=self.iid,
            url=self.web_url,
            title=self.title,
            body=self.description or "",
            state=states.get(self.state, "closed"),
            is_draft=self.draft,
            head_branch=self.source_branch,
            head_sha=self.sha or "",
            base_branch=self.target_branch,
            author=self.author.username if self.author is not None else "",
            labels=self.labels,
            is_cross_repository=self.source_project_id != self.target_project_id,
        )


class _Pipeline(_Answer):
    id: int
    sha: str


class _Job(_Answer):
    id: int
    name: str
    stage: str = ""
    status: str
    web_url: str = ""
    allow_failure: bool = False


class _Access(_Answer):
    access_level: int = 0


class _Project(_Answer):
    default_branch: str | None = None


USER, USERS, MEMBER = TypeAdapter(_Account), TypeAdapter(tuple[_Account, ...]), TypeAdapter(_Access)
PROJECT, ISSUE, NOTES = TypeAdapter(_Project), TypeAdapter(_Issue), TypeAdapter(tuple[_Note, ...])
MERGE, MERGES = TypeAdapter(_Merge), TypeAdapter(tuple[_Merge, ...])
DISCUSSIONS = TypeAdapter(tuple[_Discussion, ...])
PIPELINES, JOBS = TypeAdapter(tuple[_Pipeline, ...]), TypeAdapter(tuple[_Job, ...])
JOB_STATES: dict[str, CheckState] = {
    "success": "passed",
    "failed": "failed",
    "canceled": "failed",
    "skipped": "skipped",
    "manual": "skipped",
}

Parsed = TypeVar("Parsed")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class GitLab:
    """A project on GitLab."""

    program: Program

    @property
    def place(self) -> ForgePlace:
        return self.program.place

    async def default_branch(self) -> str:
        return (await self._get(PROJECT, self._project)).default_branch or ""

    async def may_write(self, account: str) -> bool:
        users = await self._get(USERS, f"users?username={quote(account, safe='')}")
        user = next((user for user in users if user.username == account), None)
        if user is None:
            return False
        try:
            member = await self._get(MEMBER, f"{self._project}/members/all/{user.id}")
        except NotFoundError:
            return False
        return member.access_level >= WRITER

    async def issue(self, number: int) -> Issue:
        path = f"{self._project}/issues/{number}"
        answer = await self._get(ISSUE, path)
        notes = [note async for note in self._rows(NOTES, f"{path}/notes?sort=asc&order_by=created_at")]
        return Issue(
            number=answer.iid,
            title=answer.title,
            body=answer.description or "",
            url=answer.web_url,
            author=answer.author.username if answer.author is not None else "",
            is_open=answer.state == "opened",
            labels=answer.labels,
            comments=tuple(note.value("") for note in notes if not note.system),
        )

    async def pull(self, number: int) -> Pull:
        return (await self._get(MERGE, self._merge(number))).value()

    async def pulls_of(self, head_branch: str) -> tuple[Pull, ...]:
        query = f"source_branch={quote(head_branch, safe='')}&state=all&per_page={PAGE}"
        answer = await self._get(MERGES, f"{self._project}/merge_requests?{query}")
        pulls = [each.value() for each in answer]
        ours = [pull for pull in pulls if pull.head_branch == head_branch and not pull.is_cross_repository]
        return tuple(sorted(ours, key=lambda pull: -pull.number))

    def opening(self, draft: Draft) -> tuple[str, ...]:  # noqa: ARG002 - GitHub names the branches here
        """Return the arguments that open a merge request. Its text goes to standard input."""
        return self._sending("POST", f"{self._project}/merge_requests")

    async def open_pull(self, draft: Draft) -> Pull:
        fields = {
            "source_branch": draft.head_branch,
            "target_branch": draft.base_branch,
            "title": f"{DRAFT}{draft.title}",
            "description": draft.body,
        }
        return (await self.program.read(MERGE, *self.opening(draft), data=_json(fields))).value()

    async def edit_pull(self, number: int, *, body: str, base_branch: str) -> None:
        await self._send("PUT", self._merge(number), {"description": body, "target_branch": base_branch})

    async def checks(self, pull: Pull) -> tuple[Check, ...]:
        pipelines = await self._get(PIPELINES, f"{self._merge(pull.number)}/pipelines?per_page={PAGE}")
        latest = max((each.id for each in pipelines if each.sha == pull.head_sha), default=None)
        if latest is None:
            return ()
        return tuple([_check(job, pull) async for job in self._rows(JOBS, f"{self._project}/pipelines/{latest}/jobs?")])

    async def log(self, check: Check) -> str:
        if not check.job:
            return ""
        path = f"{self._project}/jobs/{check.job}/trace"
        return (await self.program.ask("api", "--hostname", self.place.host, path))[-LOG_CHARACTERS:]

    async def threads(self, number: int) -> tuple[Thread, ...]:
        me = await self._me()
        discussions = [each async for each in self._rows(DISCUSSIONS, f"{self._merge(number)}/discussions?")]
        return tuple(_thread(each, me) for each in discussions if any(note.resolvable for note in each.notes))

    async def comments(self, number: int) -> tuple[Comment, ...]:
        me = await self._me()
        discussions = [each async for each in self._rows(DISCUSSIONS, f"{self._merge(number)}/discussions?")]
        return tuple(
            note.value(me)
            for each in discussions
            for note in each.notes
            if not note.system and not any(other.resolvable for other in each.notes)
        )

    async def comment(self, number: int, body: str, *, thread: str = "") -> None:
        discussion = f"/discussions/{quote(thread, safe='')}" if thread else ""
        await self._send("POST", f"{self._merge(number)}{discussion}/notes", {"body": body})

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def _me(self) -> str:
        return (await self._get(USER, "user")).username

    @property
    def _project(self) -> str:
        return f"projects/{quote(self.place.repo, safe='')}"

    def _merge(self, number: int) -> str:
        return f"{self._project}/merge_requests/{number}"

    async def _get(self, kind: TypeAdapter[Parsed], path: str) -> Parsed:
        return await self.program.read(kind, "api", "--hostname", self.place.host, path)

    async def _rows(self, kind: TypeAdapter[tuple[Row, ...]], path: str) -> AsyncIterator[Row]:
        """Return all rows of a listing. `path` must contain a `?`."""
        for page in range(1, MOST_PAGES + 1):
            rows = await self._get(kind, f"{path}&per_page={PAGE}&page={page}".replace("?&", "?"))
            for row in rows:
                yield row
            if len(rows) < PAGE:
                return

    def _sending(self, method: str, path: str) -> tuple[str, ...]:
        header = "--header=Content-Type: application/json"
        return ("api", "--hostname", self.place.host, f"--method={method}", header, "--input", "-", path)

    async def _send(self, method: str, path: str, fields: Mapping[str, object]) -> None:
        await self.program.ask(*self._sending(method, path), data=_json(fields))


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode()


def _check(job: _Job, pull: Pull) -> Check:
    state = JOB_STATES.get(job.status, "pending")
    state = "passed" if state == "failed" and job.allow_failure else state
    name = f"{job.stage} / {job.name}" if job.stage else job.name
    return Check(name=name, state=state, link=job.web_url, sha=pull.head_sha, job=str(job.id))


def _thread(discussion: _Discussion, me: str) -> Thread:
    first = discussion.notes[0]
    position = first.position or _Position()
    return Thread(
        id=discussion.id,
        path=position.new_path or position.old_path or "",
        line=position.new_line,
        is_resolved=all(note.resolved for note in discussion.notes if note.resolvable),
        comments=tuple(note.value(me) for note in discussion.notes if not note.system),
    )
