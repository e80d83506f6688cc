"""The client of a place: a line for each forge."""

from collections.abc import Mapping
from typing import assert_never

from fleet.features.forge.forge import Forge
from fleet.features.forge.github import GitHub
from fleet.features.forge.gitlab import GitLab
from fleet.features.forge.place import Place
from fleet.features.forge.program import Program


def open_forge(place: Place, environ: Mapping[str, str], held: tuple[int, ...] = ()) -> Forge:
    program = Program(place, environ, held)
    match place.kind:
        case "github":
            return GitHub(program)
        case "gitlab":
            return GitLab(program)
        case _:
            assert_never(place.kind)
