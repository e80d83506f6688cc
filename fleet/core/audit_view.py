"""An audit as data: what `fleet audit --json` prints, and what its text is made of."""

from collections.abc import Sequence
from typing import Any

from fleet.core.audit import Audit, Entry
from fleet.core.chains import Beginning, Chain
from fleet.core.facts import CheckRun
from fleet.core.state import Attempt, Version


def audit_view(audit: Audit) -> dict[str, Any]:
    state = audit.state
    return {
        "run": state.run,
        "epic": state.goal,
        "repository": state.repository,
        "base": state.base,
        "base_name": state.base_name,
        "result_branch": state.result_branch,
        "tip": audit.branch.tip,
        "simulated": state.simulated,
        "plan_values": dict(state.values),
        "ending": state.ending,
        "review": {"by": state.policy.reviewing, "rules": state.policy.rules.model_dump(mode="json")},
        "holds": audit.holds,
        "problems": list(audit.problems),
        "commits": [_entry(entry) for entry in audit.entries],
        "not_published": [chain.member.commit for chain in audit.unpublished],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    commit, chain = entry.commit, entry.chain
    on_branch = (
        {"commit": commit.id, "tree": commit.tree, "subject": commit.subject, "on_branch": True}
        if commit is not None
        else {"commit": chain.member.commit if chain else None, "tree": None, "subject": None, "on_branch": False}
    )
    chained = _chain(chain) if chain is not None else dict.fromkeys(CHAIN)
    return {**on_branch, **chained, "problems": list(entry.problems)}


CHAIN = ("plan", "approval", "subtask", "attempts", "landing")


def _chain(chain: Chain) -> dict[str, Any]:
    begun = chain.begun
    spec = begun.spec.model_dump(mode="json") if begun is not None else {"id": chain.member.subtask}
    return {
        "plan": [_version(version) for version in chain.versions],
        "approval": _approval(begun) if begun is not None else None,
        "subtask": {**spec, "area": chain.area, "split_from": chain.split_from},
        "attempts": [_attempt(attempt, chain) for attempt in chain.attempts],
        "landing": {
            "batch": chain.batch,
            "at": chain.landed_at,
            "published_at": chain.published_at,
            "tree": chain.member.tree or None,
            "tested": "unknown" if chain.silent else "itself" if chain.member.tested else "with what landed on it",
            "checks": _checks(chain.checks or chain.above),
        },
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "version": version.plan.version,
        "by": version.by,
        "at": version.at,
        "area": version.area,
        "why": version.why,
    }


def _approval(begun: Beginning) -> dict[str, Any]:
    """`version` is what was approved; `in_force` is the version the attempt began under.

    `stopped_by` is why the rules would not have let it pass: then a person did.
    """
    approval = begun.approval
    said = (
        {"version": approval.version, "by": approval.by, "at": approval.at, "automatic": approval.automatic}
        if approval is not None
        else dict.fromkeys(("version", "by", "at", "automatic"))
    )
    against = [{"version": no.version, "by": no.by, "at": no.at, "why": no.why} for no in begun.rejections]
    return {
        "asked_for": begun.reviewed,
        **said,
        "in_force": begun.version,
        "stopped_by": list(begun.stopped),
        "rejections": against,
    }


def _attempt(attempt: Attempt, chain: Chain) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "worker": attempt.worker,
        "model": attempt.model,
        "strategy": attempt.strategy,
        "guidance": attempt.guidance,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "cost_dollars": attempt.spend.dollars,
        "candidate": attempt.commit,
        "paths": list(attempt.paths),
        "report": attempt.report.model_dump(mode="json") if attempt.report is not None else None,
        "verified": attempt.verified,
        "failure": attempt.failure.model_dump(mode="json") if attempt.failure is not None else None,
        "landed": attempt.number == chain.member.attempt,
        "checks": _checks(attempt.checks),
    }


def _checks(runs: Sequence[CheckRun]) -> list[dict[str, Any]]:
    return [run.model_dump(mode="json") for run in runs]
