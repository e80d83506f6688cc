"""What the shell's completion knows of the command line: for each verb its arguments and options by kind of value."""

import json
from typing import Any

import typer.main

from fleet.cli.entry import app


def content() -> str:
    root: Any = typer.main.get_command(app)
    return json.dumps(dict(sorted(_verbs("", root).items())), indent=1) + "\n"


def _verbs(path: str, command: Any) -> dict[str, Any]:
    below = getattr(command, "commands", None)
    if below is not None:
        found: dict[str, Any] = {}
        for name, verb in below.items():
            found |= _verbs(f"{path} {name}".strip(), verb)
        return found
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    return {
        path: {
            "arguments": [p.metavar for p in arguments],
            "many": any(p.nargs == -1 for p in arguments),
            "options": {name: "" if p.is_flag else p.metavar for p in options for name in p.opts} | {"--help": ""},
        }
    }
