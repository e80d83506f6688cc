"""The client of a place: a line for each forge."""

from collections.abc import Mapping
from typing import assert_never

from fleet.forge.forge import Forge
from fleet.forge.github import GitHub
from fleet.forge.gitlab import GitLab
from fleet.forge.place import Place
from fleet.forge.program import Program


def open_forge(place: Place, environ: Mapping[str, str], held: tuple[int, ...] = ()) -> Forge:
    program = Program(place, environ, held)
    match place.kind:
        case "github":
            return GitHub(program)
        case "gitlab":
            return GitLab(program)
        case _:
            assert_never(place.kind)
