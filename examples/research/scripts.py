"""The scripts of the simulated model for the two scenes: planner revisions and worker actions.

`SITE` is the address of the pages. In the first scene, the planner only plans the next step, and each revision waits
for the results of the previous one.
"""

from typing import Any

Json = dict[str, Any]

RESEARCH = "Find out how much rain the north and the south have for each thousand people, and write it down."
COMPETITORS = "Research competitors and draft a summary."


def step(id_: str, title: str, goal: str, worker: str, path: str, *needs: str, **more: Any) -> Json:
    """A subtask that writes one file, and is done when that file is not empty."""
    check = {"criterion": f"{path} exists", "run": f"test -s {path}"}
    base = {"id": id_, "title": title, "goal": goal, "worker": worker, "touches": [path]}
    return {**base, "acceptance": [check], "depends_on": list(needs), **more}


def fetched(address: str, path: str) -> Json:
    return {"do": "fetch", "files": {path: f"http://SITE{address}"}}


def computed(region: str) -> Json:
    return {"do": "shell", "commands": [f"python3 tools/per_head.py {region}"]}


def revision(assessment: str, **operations: Any) -> Json:
    return {"assessment": assessment, **operations}


def workers(**attempts: list[Json]) -> Json:
    return {id_.replace("_", "-"): {"attempts": tried} for id_, tried in attempts.items()}


RAIN = step("rain", "Fetch the rain", "data/rain.json holds what /rain.json says.", "retrieval", "data/rain.json") | {
    "failure_action": "retry"
}
PEOPLE = step("people", "Fetch the people", "data/people.csv: thousands per region.", "retrieval", "data/people.csv")
COMPUTE = step(
    "compute", "Compute rain per head", "data/*.txt: millimetres per thousand people.", "processing", "data/*.txt"
) | {"acceptance": [{"criterion": "both exist", "run": "test -s data/north.txt && test -s data/south.txt"}]}
SUMMARY = step(
    "summary", "Write the summary", "summary.md states the result in a sentence.", "summary", "summary.md"
) | {
    "acceptance": [
        {
            "criterion": "it states the computed values",
            "run": 'grep -q "$(cat data/north.txt)" summary.md && grep -q "$(cat data/south.txt)" summary.md',
        }
    ]
}
HALVES = [
    step(f"compute-{region}", f"Compute the {region}", f"data/{region}.txt", "processing", f"data/{region}.txt")
    for region in ("north", "south")
]

QUESTION: Json = {
    "label": "research crew",
    "planner": {
        "steps": [
            {
                "when": {"start": True},
                "revision": revision("First the raw data; the rest follows.", add=[RAIN, PEOPLE]),
            },
            {
                "when": {"failed": "people"},
                "revision": revision(
                    "That source is closed to us; a mirror has the same data.",
                    retry=[{"id": "people", "guidance": "Use /mirror/people.csv instead. The error was: {evidence}"}],
                ),
            },
            {
                "when": {"merged": ["rain", "people"]},
                "revision": revision("Both sources are available. Now the numbers.", add=[COMPUTE]),
            },
            {
                "when": {"failed": "compute", "kind": "too_complex"},
                "revision": revision(
                    "Then region by region.",
                    split=[{"id": "compute", "why": "two regions are two computations", "into": HALVES}],
                ),
            },
            {
                "when": {"merged": ["compute-north", "compute-south"]},
                "revision": revision("The numbers are computed. Now the summary.", add=[SUMMARY]),
            },
        ],
        "synthesis": "The north has 30 mm for each thousand people, the south 15.",
    },
    "workers": workers(
        rain=[fetched("/rain.json", "data/rain.json")],
        people=[fetched("/people.json", "data/people.csv"), fetched("/mirror/people.csv", "data/people.csv")],
        compute=[{"do": "too_complex", "message": "Two regions, two formats: split it."}],
        compute_north=[computed("north")],
        compute_south=[computed("south")],
        summary=[
            {"do": "ask", "needs": ["Which unit do its readers want: millimetres or inches?"]},
            {
                "do": "solve",
                "files": {"summary.md": "Per thousand people the north has 30 mm of rain, the south 15 mm.\n"},
            },
        ],
    ),
}

READ_B = step(
    "step-4", "Read B's pricing page", "b/pricing.txt holds the page.", "retrieval", "b/pricing.txt", "step-3"
)
WRITE = step(
    "step-5", "Write comparison", "comparison.md compares prices.", "summary", "comparison.md", "step-3", "step-4"
)

COMPETITION: Json = {
    "label": "competitors",
    "planner": {
        "steps": [
            {
                "when": {"start": True},
                "revision": revision(
                    "Five steps, one after another.",
                    add=[
                        step("step-1", "Search for competitor A", "a/found.txt", "retrieval", "a/found.txt"),
                        step("step-2", "Search for competitor B", "b/found.txt", "retrieval", "b/found.txt", "step-1"),
                        step(
                            "step-3", "Read A's pricing page", "a/pricing.txt", "retrieval", "a/pricing.txt", "step-2"
                        ),
                        READ_B,
                        WRITE,
                    ],
                ),
            },
            {
                "when": {"failed": "step-3"},
                "revision": revision(
                    "A publishes no prices. We use what step 1 found, and rely more on B's page.",
                    drop=[{"id": "step-3", "why": "page not found: A publishes no prices"}],
                    revise=[
                        {"id": "step-4", "depends_on": ["step-2"]},
                        {
                            "id": "step-5",
                            "goal": "comparison.md: B's price, and A's price from a/found.txt, marked as second-hand.",
                            "depends_on": ["step-1", "step-4"],
                            "context": ["a/found.txt"],
                        },
                    ],
                ),
            },
        ],
        "synthesis": "Compared, with A's price second-hand: A has no pricing page.",
    },
    "workers": workers(
        step_1=[fetched("/search/alpha", "a/found.txt")],
        step_2=[fetched("/search/beta", "b/found.txt")],
        step_3=[fetched("/alpha/pricing", "a/pricing.txt")],
        step_4=[fetched("/beta/pricing", "b/pricing.txt")],
        step_5=[
            {
                "do": "solve",
                "files": {"comparison.md": "Beta: 12 a month. Alpha: from 9, second-hand (it has no pricing page).\n"},
            }
        ],
    ),
}
