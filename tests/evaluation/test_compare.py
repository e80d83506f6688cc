"""Two versions side by side: a worse one is found out, equal ones are not told apart, and few runs prove nothing."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from evaluation.cases import all_cases
from evaluation.compare import LEAST, Comparison, Key, compare, interval
from evaluation.score import Score, score
from evaluation.stand_in import PROVES_NOTHING, RULES, Rule, script_of
from evaluation.versions import our_prompts
from fleet.core.plans.plan import Subtask
from tests.fleet.core.story import Story

GOOD = Score(
    solved=True,
    planned=3,
    landed=3,
    criteria=4,
    proving=4,
    allowed=4,
    needed=4,
    pairs=3,
    overlapping=0,
    attempts=3,
    planner_calls=2,
    dollars=0.5,
    planner_dollars=0.2,
    minutes=1.0,
    ending="landed",
)
KEYS: tuple[Key, ...] = tuple((f"case-{number}", seed) for number in range(6) for seed in (1, 2))


def by_measure(compared: list[Comparison]) -> Mapping[str, Comparison]:
    return {each.measure: each for each in compared}


def test_a_version_that_is_always_worse_is_worse_whichever_way_the_measure_goes() -> None:
    first = {key: replace(GOOD, dollars=0.5 + index / 100) for index, key in enumerate(KEYS)}
    second = {key: replace(each, proving=2, dollars=each.dollars * 2, overlapping=1) for key, each in first.items()}
    found = by_measure(compare(first, second))
    for name in ("criteria that fail before the work", "dollars", "pairs that overlap"):
        assert found[name].verdict == "worse", name
        assert found[name].low <= found[name].difference <= found[name].high
    assert found["touches that were needed"].verdict == "no difference shown"
    assert by_measure(compare(second, first))["dollars"].verdict == "better"


def test_what_differs_both_ways_is_no_difference() -> None:
    chance = Random(3)  # noqa: S311 - not a secret
    first = {key: replace(GOOD, dollars=chance.uniform(0.4, 0.6)) for key in KEYS}
    second = {key: replace(GOOD, dollars=chance.uniform(0.4, 0.6)) for key in KEYS}
    assert by_measure(compare(first, second))["dollars"].verdict == "no difference shown"


def test_few_repositories_prove_nothing_however_often_they_were_run() -> None:
    keys = [(f"case-{number}", seed) for number in range(LEAST - 1) for seed in range(20)]
    second = replace(GOOD, dollars=5.0)
    [verdict] = {
        each.verdict for each in compare(dict.fromkeys(keys, GOOD), dict.fromkeys(keys, second)) if each.dollars
    } - {"no difference shown"}
    assert verdict == "too few repositories"


def test_only_pairs_count_and_runs_that_say_nothing_are_left_out() -> None:
    first = dict.fromkeys(KEYS, GOOD)
    second = {**dict.fromkeys(KEYS[:-1], GOOD), KEYS[0]: replace(GOOD, criteria=0, proving=0)}
    found = by_measure(compare(first, second))
    assert found["dollars"].pairs == len(KEYS) - 1
    assert found["criteria that fail before the work"].pairs == len(KEYS) - 2


def test_runs_of_one_repository_count_as_what_they_are_in_the_interval() -> None:
    """Twenty runs of each of four repositories: it is the repositories that differ."""
    together = interval([[value] * 20 for value in (-1.0, -1.0, 1.0, 2.0)])
    apart = interval([[value] for value in (-1.0, -1.0, 1.0, 2.0) for _ in range(20)])
    assert together[0] < apart[0] < 0.25 < apart[1] < together[1]


# ---- the stand-in ----------------------------------------------------------------------------------------------------


def plans_by(prompts: Mapping[str, str], seeds: range) -> dict[Key, Score]:
    """What the plans of the stand-in are worth, without a run."""
    found = {}
    for case in all_cases().values():
        for seed in seeds:
            script = script_of(case, prompts, seed)
            story = Story()
            story.planner_answers(
                add=tuple(Subtask.model_validate(each) for each in script["planner"]["steps"][0]["revision"]["add"])
            )
            real = {each.run for each in case.subtasks}
            files = {*case.base, *case.solution}
            result = score(story.state, solved=True, fails=real, passes={*real, PROVES_NOTHING}, files=files)
            widest = sum(len(each.touches) for each in story.state.specs.values())
            found[(case.name, seed)] = replace(result, allowed=widest, needed=sum(map(len, _touches(case.name))))
    return found


def _touches(name: str) -> list[tuple[str, ...]]:
    return [each.touches for each in all_cases()[name].subtasks]


def test_prompts_without_a_rule_lose_in_what_the_rule_is_about() -> None:
    ours, seeds = dict(our_prompts()), range(1, 4)
    by_ours = plans_by(ours, seeds)
    about: dict[Rule, str] = {"evidence": "criteria that fail before the work", "owners": "pairs that overlap"}
    for rule, measure in about.items():
        file, words = RULES[rule]
        by_worse = plans_by({**ours, file: ours[file].replace(words, "")}, seeds)
        found = by_measure(compare(by_ours, by_worse))
        assert found[measure].verdict == "worse", found[measure]
        assert by_measure(compare(by_worse, by_ours))[measure].verdict == "better"
    assert {each.difference for each in compare(by_ours, plans_by(ours, seeds))} == {0.0}


def test_our_prompts_have_the_rules_that_the_stand_in_looks_for() -> None:
    missing = [rule for rule, (file, words) in RULES.items() if words not in our_prompts()[file]]
    assert missing == []
