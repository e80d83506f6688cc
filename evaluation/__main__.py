"""Evaluates prompts: plans and builds small epics with known solutions, and scores the results automatically.

    python -m evaluation --simulated                                  the prompts of this tree, with a stand-in
    python -m evaluation --simulated --against /some/prompts          against those of a folder (planner.md, ...)
    python -m evaluation --key-file KEY --budget 40 --against main    against those of a commit, with real models
    python -m evaluation --key-file KEY --budget 5 --case monorepo --yes --json

Before any money is spent, it prints the number of runs and their maximum cost. With --keep, finished runs are reused.
With --against, each repository and seed is run with both versions, and the difference of each measure is shown with its
interval. docs/internals/evaluation.md explains the measures. The exit code is 1 if the second version is worse in any
measure.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from evaluation.cases import all_cases
from evaluation.compare import Comparison, compare
from evaluation.field import Field, Result, plan_field, play_field
from evaluation.report import field_lines
from evaluation.runs import NO_KEY, Service
from evaluation.versions import THIS_TREE, read_version
from fleet.errors import FleetError, UsageError
from scripts.frame import MET, MISSED, add_jobs, command_line, exit_with, progress, say

USAGE, FAILED = 2, 3


def parser() -> argparse.ArgumentParser:
    made = command_line("evaluation", __doc__)
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--simulated", action="store_true", help="use a simulated model that follows the prompts, free of charge"
    )
    where.add_argument("--key-file", type=Path, metavar="FILE", help="file that contains only the API key")
    made.add_argument(
        "--base-url", metavar="URL", default="https://api.anthropic.com", help="base URL of the model service"
    )
    made.add_argument(
        "--config", type=Path, metavar="FILE", help="fleet configuration file with models, efforts, rungs and sandbox"
    )
    made.add_argument(
        "--prompts",
        metavar="VERSION",
        default=THIS_TREE,
        help=f"prompts to evaluate: a directory or a commit (default: {THIS_TREE})",
    )
    made.add_argument("--against", metavar="VERSION", help="prompts to compare with: a directory or a commit")
    made.add_argument(
        "--case", action="append", choices=list(all_cases()), help="evaluate only this repository; repeatable"
    )
    made.add_argument(
        "--seeds", type=_positive, metavar="N", default=3, help="number of runs per repository and version (default: 3)"
    )
    made.add_argument(
        "--budget", type=_amount, metavar="USD", help="maximum cost of all runs in USD; required with a key"
    )
    made.add_argument(
        "--minutes", type=_amount, metavar="M", default=30.0, help="time limit of a run in minutes (default: 30)"
    )
    made.add_argument("--sandbox", choices=("bubblewrap", "none"), default="bubblewrap")
    made.add_argument("--keep", type=Path, metavar="DIR", help="keep runs and results in this directory and reuse them")
    made.add_argument("--yes", action="store_true", help="skip the confirmation before spending money")
    made.add_argument("--json", action="store_true", help="print JSON")
    add_jobs(made, 2)
    return made


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < inf:
        raise argparse.ArgumentTypeError(f"must be greater than 0, not {text!r}")
    return amount


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        return evaluate(args)
    except FleetError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"evaluation: {error}{hint}\n")
        return USAGE if isinstance(error, UsageError) else FAILED


def evaluate(args: argparse.Namespace) -> int:
    service = service_of(args)
    cases = [all_cases()[name] for name in dict.fromkeys(args.case or all_cases())]
    versions = [read_version(name) for name in (args.prompts, args.against) if name is not None]
    if len({version.digest for version in versions}) < len(versions):
        raise UsageError(f"{args.prompts} and {args.against} have the same prompts")
    field = plan_field(cases, versions, args.seeds, budget=budget_of(args), minutes=args.minutes)
    progress(field.announcement(simulated=service.simulated))
    if not service.simulated and not args.yes:
        confirm(field)
    with (
        TemporaryDirectory(prefix="fleet-evaluation-", dir=gettempdir(), ignore_cleanup_errors=True) as temporary,
        ThreadPoolExecutor(args.jobs) as pool,
    ):
        results = play_field(field, service, args.keep or Path(temporary), pool.map)
    compared = comparison_of(field, results)
    if args.json:
        say(json.dumps(document(field, results, compared, simulated=service.simulated), indent=2))
    else:
        say(*field_lines(field, results, compared, simulated=service.simulated))
    return MISSED if any(each.verdict == "worse" for each in compared) else MET


def service_of(args: argparse.Namespace) -> Service:
    """Raises `UsageError` for a key that can't be used."""
    config = args.config.resolve() if args.config is not None else None
    if config is not None and not config.is_file():
        raise UsageError(f"{config} does not exist")
    if args.simulated:
        return Service(config=config, sandbox=args.sandbox)
    try:
        key = args.key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the key in {args.key_file}: {error}") from None
    if not key or not key.isascii() or not key.isprintable() or key == NO_KEY:
        raise UsageError(f"{args.key_file} must contain only the API key")
    return Service(url=args.base_url, key=key, config=config, sandbox=args.sandbox)


def budget_of(args: argparse.Namespace) -> float | None:
    """Return the maximum cost of all runs. None: no budget, with a simulated model."""
    if args.budget is None and not args.simulated:
        raise UsageError("--key-file requires --budget USD, the maximum cost of all runs")
    budget: float | None = args.budget
    return budget


def confirm(field: Field) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"this may cost up to ${field.dollars:.2f}; pass --yes to confirm")
    sys.stderr.write("Go ahead? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("cancelled")


def comparison_of(field: Field, results: list[Result]) -> list[Comparison]:
    if len(field.versions) == 1:
        return []
    first, second = (
        {(each.case, each.seed): each.score for each in results if each.version == version.digest}
        for version in field.versions
    )
    return compare(first, second)


def document(field: Field, results: list[Result], compared: list[Comparison], *, simulated: bool) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "simulated": simulated,
        "versions": [{"name": each.name, "digest": each.digest} for each in field.versions],
        "budget_dollars": round(field.dollars, 6),
        "spent_dollars": round(sum(each.score.dollars for each in results), 6),
        "runs": [each.document() for each in results],
        "comparison": [asdict(each) for each in compared],
    }


if __name__ == "__main__":
    exit_with(main)
