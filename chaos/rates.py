"""Measures how many scripted faults of each level a run recovers from without a human, with confidence intervals.

    python -m chaos.rates                                          what `make chaos` runs
    python -m chaos.rates --episodes 24 --unrecoverable 1          a small sample
    python -m chaos.rates --level 4 --folder /some/folder          one level, with its runs kept there
    python -m chaos.rates --only-unrecoverable                     faults without a remedy, and those that pass

Runs go side by side, because they mostly wait. The exit code is 1 if a rate misses its target, if a fault without a
remedy ends in anything but a question, or if a passing fault of the environment or a faulty node does harm.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import sqrt
from pathlib import Path
from random import Random
from tempfile import gettempdir

from chaos.environment import PASSING_FAULTS, Survival, play_passing_fault
from chaos.faults import LEVELS, WIRE, Json
from chaos.node_levels import LEVELS as NODE_LEVELS
from chaos.node_levels import LIARS, add_levels
from chaos.play import Outcome, episodes, play
from chaos.unrecoverable_runs import LASTING_FAULTS, play_lasting_fault
from chaos.unrecoverable_subtasks import COMPLEX, UNRECOVERABLE, Verdict, play_conflicts, play_unrecoverable
from scripts.frame import Figure, Table, add_jobs, command_line, exit_with, progress, temporary_folder

WANTED = {1: 0.99, 2: 0.98, 3: 0.97, 4: 0.95, 5: 0.90}
LEVEL_NAMES = {
    1: "transient API",
    2: "stream and tool protocol",
    3: "tool, sandbox, resource",
    4: "merge and verify",
    5: "plan-level and compound",
}
EPISODES_PER_RUN = 40
RUNS_PER_ROUND = 4
"""Runs of a level that are played before their results are counted."""
Z = 1.96  # of a 95 % interval

Play = Callable[[], list[Verdict]]
Map = Callable[[Callable[[int], list[Outcome]], Iterable[int]], Iterable[list[Outcome]]]


# ---- recoverable faults ----------------------------------------------------------------------------------------------


def play_level(level: int, number: int, seed: int, folder: Path, side_by_side: Map = map) -> list[Outcome]:
    """Return the outcomes of a number of faults that struck, from as many runs as necessary."""
    struck: list[Outcome] = []
    runs = 0
    while (missing := number - len(struck)) > 0:
        round_ = range(runs + 1, runs + 1 + min(RUNS_PER_ROUND, -(-missing // EPISODES_PER_RUN)))
        size = max(5, min(EPISODES_PER_RUN, -(-missing // len(round_))))
        for outcomes in side_by_side(partial(_play_run, level, size, seed, folder), round_):
            struck += [outcome for outcome in outcomes if outcome.struck]
        runs += len(round_)
    return struck


def _play_run(level: int, size: int, seed: int, folder: Path, run: int) -> list[Outcome]:
    faults = planner_faults(level, Random(f"{seed}/{run}"))  # noqa: S311 - not a secret
    batch = episodes(level, size, seed * 1000 + run)
    played = play(folder / f"{level}-{run}", batch, seed=seed, planner_faults=faults)
    struck = [outcome for outcome in played.outcomes if outcome.struck]
    for outcome in struck:
        if not (outcome.recovered and outcome.as_expected):
            progress(f"L{level} run {run}, {outcome.ended}: {_describe(outcome)}")
    progress(f"L{level} run {run}: {len(struck)} faults")
    return list(played.outcomes)


def planner_faults(level: int, chance: Random) -> list[Json]:
    """On the highest level, the planner's own calls fail as well."""
    if level != LEVELS[-1]:
        return []
    return [dict(fault) for fault in chance.sample(WIRE, 3)]


def _describe(outcome: Outcome) -> str:
    end = "recovered" if outcome.recovered else "a human was asked" if outcome.asked else "not landed"
    kinds = ", ".join(sorted(outcome.classes)) or "no incident"
    fault = outcome.episode.fault
    return f"{', '.join(outcome.episode.ids)}: row {fault.row}, {fault.name}: {end} ({kinds})"


def rate_figure(level: int, outcomes: Sequence[Outcome]) -> Figure:
    """Return the share of recovered faults, and the number of faults."""
    recovered = sum(outcome.recovered for outcome in outcomes)
    low, high = wilson(recovered, len(outcomes))
    attempts = sum(outcome.attempts for outcome in outcomes)
    landed = sum(len(outcome.episode.ids) for outcome in outcomes if outcome.landed)
    return Figure(
        f"recovered without a human: L{level} {LEVEL_NAMES[level]}",
        f"{recovered} / {len(outcomes)}",
        recovered / len(outcomes),
        wanted=WANTED[level],
        at_least=True,
        note=f"95 % interval {low:.1%} to {high:.1%}; {attempts / max(1, landed):.2f} attempts per success",
    )


def wilson(good: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not total:
        return 0.0, 1.0
    share = good / total
    middle = (share + Z**2 / (2 * total)) / (1 + Z**2 / total)
    reach = Z / (1 + Z**2 / total) * sqrt(share * (1 - share) / total + Z**2 / (4 * total**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def row_details(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Recovered faults out of all, by row of the table in docs/internals/reliability.md."""
    played, recovered = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for outcome in outcomes:
        row = (outcome.episode.fault.row, outcome.episode.fault.name)
        played[row] += 1
        recovered[row] += outcome.recovered
    return tuple(f"row {row[0]} {row[1]}: {recovered[row]} / {played[row]}" for row in sorted(played))


# ---- faults without a remedy, and faults that pass -------------------------------------------------------------------


def unrecoverable_runs(number: int, seed: int, folder: Path) -> tuple[list[Play], list[Play]]:
    """The runs in which each kind occurs so often: the slow ones, which kinds share, and one run per lasting fault."""
    if not number:
        return [], []
    others = [kind for kind in UNRECOVERABLE if kind != COMPLEX]  # its planner gives up in the end, for the whole run
    shared: list[Play] = [partial(play_unrecoverable, folder, number, seed, kinds) for kinds in ([COMPLEX], others)]
    shared.append(partial(play_conflicts, folder, number, seed))
    return shared, [
        partial(_play_lasting, kind, each, folder, seed) for each in range(number) for kind in LASTING_FAULTS
    ]


def _play_lasting(kind: str, number: int, folder: Path, seed: int) -> list[Verdict]:
    return [play_lasting_fault(kind, number, folder, seed)]


def unrecoverable_figure(verdicts: Sequence[Verdict]) -> tuple[Figure, tuple[str, ...]]:
    """The share of honest endings among faults without a remedy."""
    kinds = Counter(verdict.kind for verdict in verdicts)
    note = (
        f"asked: {sum(verdict.asked for verdict in verdicts)}, "
        f"false success: {sum(verdict.landed for verdict in verdicts)}, "
        f"endless: {sum(verdict.endless for verdict in verdicts)}, "
        f"past a limit: {sum(not verdict.within_limits for verdict in verdicts)}"
    )
    honest = sum(verdict.honest for verdict in verdicts)
    where, share = f"{honest} / {len(verdicts)}", honest / len(verdicts)
    figure = Figure("without a remedy: ends honestly", where, share, wanted=1, at_least=True, note=note)
    wrong = (f"NOT AS WANTED: {verdict}" for verdict in verdicts if not verdict.honest)
    return figure, (*(f"{kind}: {count}" for kind, count in kinds.items()), *wrong)


def passing_figure(survivals: Sequence[Survival]) -> tuple[Figure, tuple[str, ...]]:
    """The share of runs that a passing fault of the environment did not harm."""
    kinds = Counter(survival.kind for survival in survivals)
    unharmed = sum(survival.unharmed for survival in survivals)
    where, share = f"{unharmed} / {len(survivals)}", unharmed / len(survivals)
    note = "landed without a human, no attempt lost"
    figure = Figure("passing faults: run unharmed", where, share, wanted=1, at_least=True, note=note)
    wrong = (f"NOT AS WANTED: {survival}" for survival in survivals if not survival.unharmed)
    return figure, (*(f"{kind}: {count}" for kind, count in kinds.items()), *wrong)


# ---- the program -----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = command_line("chaos.rates", __doc__)
    parser.add_argument("--episodes", type=int, metavar="N", default=200, help="N faults of each level (200)")
    parser.add_argument("--level", type=int, action="append", choices=LEVELS, help="play this level only")
    parser.add_argument(
        "--unrecoverable", "--hopeless", type=int, metavar="N", default=10, help="N of each other kind of fault (10)"
    )
    parser.add_argument("--only-unrecoverable", "--only-hopeless", action="store_true", help="no levels")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the runs in this folder")
    add_jobs(parser, 2)
    args = parser.parse_args()
    levels = () if args.only_unrecoverable else args.level or LEVELS
    others = 0 if args.level else args.unrecoverable
    table = Table(f"recovery from scripted faults, simulated model, seed {args.seed}")
    with temporary_folder(Path(gettempdir())) as temporary, ThreadPoolExecutor(args.jobs) as jobs:
        folder = args.folder or temporary
        shared, single = unrecoverable_runs(others, args.seed, folder)
        verdicts = [jobs.submit(play_shared) for play_shared in shared]  # these take the longest
        outcomes = {level: play_level(level, args.episodes, args.seed, folder, jobs.map) for level in levels}
        verdicts += [jobs.submit(play_one) for play_one in single]
        passing = [(kind, each) for each in range(others) for kind in PASSING_FAULTS]
        survivals = [jobs.submit(play_passing_fault, kind, each, folder, args.seed) for kind, each in passing]
        for level in levels:
            table.add(rate_figure(level, outcomes[level]), details=row_details(outcomes[level]))
        if verdicts:
            figure, details = unrecoverable_figure([verdict for done in verdicts for verdict in done.result()])
            table.add(figure, details=details)
        if survivals:
            figure, details = passing_figure([done.result() for done in survivals])
            table.add(figure, details=details)
            add_levels(table, (*NODE_LEVELS, LIARS), max(1, others // 5), folder, jobs)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
