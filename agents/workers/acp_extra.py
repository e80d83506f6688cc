"""Whether the extra `acp` is installed, without an import of it."""

from importlib.util import find_spec

ACP_EXTRA = "pip install 'worktree-fleet[acp]'"


def has_acp() -> bool:
    return find_spec("acp") is not None
