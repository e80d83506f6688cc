"""An instruction of the operator as a model reads it: the only text, besides its brief, that it is to obey."""

from agents.base.text import fenced, well_formed
from fleet.core.state.subtask_state import Instruction

TAG = "operator"


def operator_text(instruction: Instruction, number: int | None = None) -> str:
    """A block that nothing inside can close; with a number no other block is like it."""
    numbered = {} if number is None else {"number": number}
    return well_formed(fenced(TAG, {**numbered, "by": instruction.by, "instruction": instruction.text}))


def without_operator_tags(text: str) -> str:
    """A text of others that becomes a part of a text of ours: it holds no block of the operator."""
    return text.replace(f"<{TAG}", f"[{TAG}").replace(f"</{TAG}", f"[/{TAG}")


def is_operator_text(text: str) -> bool:
    """Whether a text of ours is such a block. Texts of others reach a model as results of tools, never as texts."""
    return text.startswith(f"<{TAG}>")
