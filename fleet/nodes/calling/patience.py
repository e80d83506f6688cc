"""How long an order may be silent: a node that gives signs of life may still never finish what it was given."""

import math
from dataclasses import dataclass, field
from typing import Self

from anyio import CancelScope, current_time


@dataclass(slots=True)
class Patience:
    """Cancels what happens in its block once nothing was heard for so long. Waiting for us does not count."""

    seconds: float = math.inf
    scope: CancelScope = field(default_factory=CancelScope)
    _rests: bool = False

    def __enter__(self) -> Self:
        self.scope.__enter__()
        self.heard()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self.scope.__exit__(*error)  # type: ignore[arg-type] # what `with` passes

    def heard(self) -> None:
        """Something came from the node."""
        if not self._rests:
            self.scope.deadline = current_time() + self.seconds

    def rest(self) -> None:
        """The node waits for us."""
        self._rests, self.scope.deadline = True, math.inf

    def go_on(self) -> None:
        """It has what it waited for."""
        self._rests = False
        self.heard()

    @property
    def is_over(self) -> bool:
        return self.scope.cancelled_caught

    @property
    def why(self) -> str:
        """Why there is no report."""
        return f"nothing was heard of an order for {self.seconds:.0f} s" if self.is_over else "its report never came"
