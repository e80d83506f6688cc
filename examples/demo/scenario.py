"""The script of the demo for the simulated model: the plan, piece by piece, and which subtask meets which fault.

Deterministic for a given size. How a script is played, and how the run is started, is not known here.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from examples.demo.library import SMALL, Module

Json = dict[str, Any]

EPIC = """Write textkit

The repository holds stubs and a specification for each of them. Write every module so that its specification passes,
without touching any other file. A module may use other modules, and is written after them.
"""

QUESTION = "When a comma and a semicolon fit a text equally well, which one is it?"
ANSWER = "The comma, as in the standard."

RENDER = ("parser", "renderer")
PARTS = ("render-parse", "render-fill")
FIRST = (
    "slugs",
    "wrap",
    "distance",
    "roman",
    "dialect",
    "tokens",
    "lru",
    "diff",
    "width",
    "numbers",
    "cases",
    "entities",
)
SECOND = ("table", "outline", "render", "cli")

_STRAY = {"README.md": "# textkit\n\nNow with numbers!\n"}
_FAULTS = {
    "unit_volume": "wrong", "pentagonal": "wrong", "perrin": "wrong", "semver": "wrong",
    "crc16_usb": "claim", "base58": "claim", "dates_it": "claim",
    "unit_force": "stray", "dotenv": "stray",
    "crc32_zip": "overloaded", "jaccard_3": "overloaded", "affine_3_7": "overloaded",
    "unit_speed": "cut off", "hex_colour": "cut off", "rail_fence_4": "cut off",
}  # fmt: skip
"""Faults by small module."""
_TURNS, _TURNS_LARGE, _TURNS_AGAIN = 3, 4, 1
"""Turns spent looking around: in a first attempt, in one of the large demo, and in one that knows what went wrong."""


def script(modules: Sequence[Module], size: int) -> Json:
    """The script of the simulated model."""
    by_name = {module.name: module for module in modules}
    large = size > SMALL
    pace = {"think_s": 4.0, "jitter": 0.35} if large else {"think_s": 0.9, "jitter": 0.4}
    workers: dict[str, Json] = {name: {"attempts": attempts} for name, attempts in _core_workers(by_name).items()}
    if large:
        brisk = {"think_s": 1.2, "jitter": 0.4}
        for name in (*SECOND, *PARTS):  # one after another, while the many small ones are running
            workers[name] |= {"pace": brisk}
        families = (module for module in modules if module.family != "core")
        workers |= {each.name: {"attempts": list(_attempts(each, _FAULTS.get(each.name)))} for each in families}
    return {
        "label": f"textkit, {size} subtasks",
        "seed": 7,
        "pace": pace,
        "planner": {**_planner(by_name, modules), "pace": {"think_s": 0.8, "jitter": 0.2}},
        "workers": workers,
    }


def plan(modules: Sequence[Module]) -> Json:
    """The whole plan as one document, without later revisions."""
    by_name = {module.name: module for module in modules}
    subtasks = [*_first(by_name, modules), *(_second(name, by_name) for name in SECOND)]
    return {"plan_id": "textkit", "goal": "Write textkit", "version": 1, "subtasks": subtasks}


def subtask(id_: str, modules: Sequence[Module], needs: Iterable[str] = (), *, title: str | None = None) -> Json:
    """A subtask that writes modules."""
    names = " and ".join(module.path for module in modules)
    says = "; ".join(f"{module.says} (specification: {module.test_path})" for module in modules)
    planned: Json = {
        "id": id_,
        "title": title or f"Write textkit.{modules[0].name}",
        "goal": f"Write {names}. {says}. Keep the signatures of the stub.",
        "acceptance": [
            {
                "criterion": f"{module.name} meets its specification",
                "run": f"python3 -m unittest tests.test_{module.name}",
            }
            for module in modules
        ],
        "touches": [module.path for module in modules],
    }
    return {**planned, "depends_on": list(needs)} if needs else planned


def _first(by_name: dict[str, Module], modules: Sequence[Module]) -> list[Json]:
    core = [subtask(name, [by_name[name]]) for name in FIRST]
    return core + [subtask(module.name, [module]) for module in modules if module.family != "core"]


def _second(id_: str, by_name: dict[str, Module]) -> Json:
    if id_ == "render":
        return subtask(id_, [by_name[name] for name in RENDER], ("tokens", "lru", "entities"), title="Render templates")
    needs = ["render" if need == "renderer" else need for need in by_name[id_].needs]
    return subtask(id_, [by_name[id_]], needs)


def _planner(by_name: dict[str, Module], modules: Sequence[Module]) -> Json:
    return {
        "explore": [
            {"tool": "repo_map", "input": {}},
            {"tool": "read_file", "input": {"path": "AGENTS.md"}},
            {"tool": "list_files", "input": {"pattern": "tests/*"}},
        ],
        "steps": [*_planned(by_name, modules), *_recovered(by_name)],
        "synthesis": f"textkit is written: {len(modules)} modules, and each meets its specification.",
    }


def _planned(by_name: dict[str, Module], modules: Sequence[Module]) -> Iterator[Json]:
    """The plan at the start, and its second part once the basic modules have landed."""
    at_first = (
        "Every module has a stub and a specification. Those without dependencies come first; "
        "I plan what builds on them when I see the results."
    )
    yield _step({"start": True}, at_first, add=_first(by_name, modules))
    later = [_second(name, by_name) for name in SECOND]
    yield _step(
        {"merged": ["tokens", "width", "slugs"]},
        "The basic modules have landed. Now the ones that build on them.",
        add=later,
    )


def _recovered(by_name: dict[str, Module]) -> Iterator[Json]:
    """The split, and the question with its answer. Every other failure is retried with its evidence, unscripted."""
    parse, fill = PARTS
    parts = [
        subtask(parse, [by_name["parser"]], ("tokens",), title="Parse templates"),
        subtask(fill, [by_name["renderer"]], (parse,), title="Fill templates in"),
    ]
    split = {"id": "render", "why": "a parser and a renderer are too much for one subtask", "into": parts}
    too_complex = {"failed": "render", "kind": "too_complex"}
    yield _step(too_complex, "Parsing and filling in are separate tasks; one worker for each.", split=[split])
    ask = {"about": "dialect", "question": QUESTION, "options": ["the comma", "the semicolon"]}
    undecided = "The specification leaves this open, and I should not guess: a human decides."
    yield _step({"failed": "dialect"}, undecided, ask=[ask])
    retry = {"id": "dialect", "guidance": "A human decided: {answer}"}
    yield _step({"answered": "dialect"}, "The question about dialects is answered.", retry=[retry])


def _step(when: Json, assessment: str, **operations: list[Json]) -> Json:
    return {"when": when, "revision": {"assessment": assessment, **operations}}


def _core_workers(by_name: dict[str, Module]) -> dict[str, list[Json]]:
    solved = {name: _solve([module]) for name, module in by_name.items() if module.family == "core"}
    again = {name: work | {"turns": _TURNS_AGAIN} for name, work in solved.items()}
    workers = {name: [work] for name, work in solved.items()}
    workers["wrap"] = [_overloaded(solved["wrap"]), again["wrap"]]
    workers["cases"] = [{"do": "break_stream", "turn": 2, "then": solved["cases"]}]
    workers["diff"] = [{"do": "malformed", "turn": 1, "then": solved["diff"]}]
    workers["roman"] = [_wrong(by_name["roman"]), again["roman"]]
    workers["lru"] = [{"do": "claim", "turns": 4}, again["lru"]]
    workers["numbers"] = [_stray(by_name["numbers"]), again["numbers"]]
    workers["dialect"] = [{"do": "ask", "turns": 4, "needs": [QUESTION]}, again["dialect"]]
    too_much = "A parser and a renderer together are too much for one subtask: split it in two."
    workers["render"] = [{"do": "too_complex", "turns": 1, "message": too_much}]
    workers[PARTS[0]] = workers.pop("parser")
    workers[PARTS[1]] = workers.pop("renderer")
    return workers


def _attempts(module: Module, fault: str | None) -> Iterator[Json]:
    """The attempts at a small module: its fault, if it has one, and then the solution."""
    solved, again = _solve([module], turns=_TURNS_LARGE), _solve([module], turns=_TURNS_AGAIN)
    match fault:
        case "wrong":
            yield from (_wrong(module, turns=_TURNS_LARGE), again)
        case "claim":
            yield from ({"do": "claim", "turns": _TURNS_LARGE}, again)
        case "stray":
            yield from (_stray(module, turns=_TURNS_LARGE), again)
        case "overloaded":
            yield from (_overloaded(solved), again)
        case "cut off":
            yield {"do": "break_stream", "turn": 2, "then": solved}
        case _:
            yield solved


def _overloaded(solved: Json) -> Json:
    """More errors in a row than a client makes tries for one call: the attempt fails, and the next one passes."""
    return {"do": "http", "status": 529, "times": 6, "turn": 3, "retry_after": 0.4, "then": solved}


def _solve(modules: Sequence[Module], turns: int = _TURNS) -> Json:
    result = {"modules": [module.name for module in modules]}
    says = {"summary": f"{modules[0].says}: written, its specification passes.", "result": result}
    return {"do": "solve", "turns": turns, "files": {module.path: module.code for module in modules}, "says": says}


def _wrong(module: Module, turns: int = _TURNS) -> Json:
    return {"do": "wrong", "turns": turns, "files": {module.path: module.mistaken}}


def _stray(module: Module, turns: int = _TURNS) -> Json:
    return {"do": "stray", "turns": turns, "files": {module.path: module.code}, "outside": _STRAY}
