"""Takes back a cancel that no engine carried out: a person who resumes the run wants it to continue."""

import time

from fleet.config.environment import user
from fleet.core.state.facts import CancelRequested, RunReopened
from fleet.runs.journal import Journal, held
from fleet.runs.run_folder import RunFolder


def withdraw_cancel(folder: RunFolder) -> None:
    """Remove cancels from the inbox of a run that no engine runs, and reopen the run if one was recorded."""
    if not _cancels(folder) and not folder.state().cancelled:
        return
    with held(folder.journal), Journal(folder.journal) as journal:
        state, pending = folder.state(), _cancels(folder)
        if not state.ended and (pending or state.cancelled):
            journal.append([RunReopened(at=time.time(), by=user())], taken=pending)


def _cancels(folder: RunFolder) -> list[int]:
    with Journal(folder.journal) as journal:
        return [id_ for id_, request in journal.requests() if isinstance(request, CancelRequested)]
