"""`dataclasses.replace`, in a tenth of its time for the one value that every fact changes several times."""

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from fleet.core.state.state import RunState

T = TypeVar("T")

if TYPE_CHECKING:  # the type checker knows the fields of the library's own only
    from dataclasses import replace as replace  # noqa: PLC0414 - exported
else:

    def replace(value: T, /, **changes: Any) -> T:
        """A copy with other fields. `RunState` has many, none of them computed, so its are copied at once."""
        if type(value) is not RunState:
            return dataclasses.replace(value, **changes)
        made = object.__new__(RunState)
        vars(made).update(vars(value), **changes)
        return made
