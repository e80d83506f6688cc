"""The same moves for an agent that others built: Claude Code has tools of its own for what our workers' tools do.

What a move means stays; only its words change. Its ids stay as they are, since they are all the memory there is.
"""

from dataclasses import replace

from pydantic import JsonValue

from agents.simulated.doing import map_files
from agents.simulated.moves import Cut, Move, Refuse, Say, Stall, Text, ToolUse
from agents.simulated.request import SESSION_ENDING


def translated(move: Move, tools: frozenset[str]) -> Move:
    """The move in the words of whoever asked."""
    if SESSION_ENDING not in tools or isinstance(move.reply, Refuse):
        return move
    reply = move.reply
    if isinstance(reply, Cut | Stall):
        return replace(move, reply=replace(reply, say=_said(reply.say)))
    return replace(move, reply=_said(reply))


def _said(say: Say) -> Say:
    return replace(say, blocks=tuple(_block(block) for block in say.blocks))


def _block(block: Text | ToolUse) -> Text | ToolUse:
    if isinstance(block, Text):
        return block
    match block.name:
        case "bash":
            return replace(block, name="Bash", input=_command(str(block.input.get("command", ""))))
        case "str_replace_based_edit_tool":
            path, text = str(block.input.get("path", "")), str(block.input.get("file_text", ""))
            return replace(block, name="Bash", input=_command(map_files({path: text})[0]))
        case "report":
            return replace(block, name=SESSION_ENDING)
        case _:
            return block


def _command(command: str) -> dict[str, JsonValue]:
    return {"command": command, "description": "The next step of a simulated worker"}
