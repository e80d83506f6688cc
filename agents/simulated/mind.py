"""The simulated model without its server: a request in, a move out. All it remembers is which troubles have struck."""

from collections import Counter
from hashlib import sha256

from agents.simulated.dialect import translated
from agents.simulated.moves import Key, Move, Say, Text
from agents.simulated.planner import play_planner
from agents.simulated.request import Request
from agents.simulated.script import Script
from agents.simulated.worker import play_worker


class Mind:
    """Plays one script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._spent: Counter[Key] = Counter()

    def move(self, request: Request) -> Move:
        """What to answer. A trouble that strikes is counted here, whatever becomes of it on the wire."""
        match request.role:
            case "planner":
                move = play_planner(self.script, request, self._spent.__getitem__)
            case "worker":
                move = translated(play_worker(self.script, request, self._spent.__getitem__), request.tools)
            case _:
                move = Move(Say((Text("This is a simulated model; it plays planners and workers."),), "end_turn"))
        if move.spends is not None:
            self._spent[move.spends] += 1
        return move

    def struck(self) -> list[dict[str, str | int]]:
        """Which troubles have struck, and how often: so that a test knows that what it planned did happen."""
        return [
            {"run": run, "subtask": subtask, "attempt": number + 1, "depth": depth, "times": times}
            for (run, subtask, number, depth), times in self._spent.items()
        ]

    def think_s(self, request: Request, move: Move) -> float:
        """How long the answer takes: the pace, give or take the jitter, which follows from the seed."""
        pace = move.pace or self.script.pace
        turn = f"{self.script.seed}/{request.run}/{request.subtask.get('id')}/{request.attempt}/{len(request.turns)}"
        spread = int.from_bytes(sha256(turn.encode("utf-8", "replace")).digest()[:4]) / 2**32
        return pace.think_s * (1 + pace.jitter * (2 * spread - 1))
