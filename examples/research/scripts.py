"""What the simulated model thinks in the two scenes: its revisions, and what its workers do.

`SITE` is the pages' address.
In the first scene the planner plans the next step only: each revision waits for what the last one brought.
"""

from typing import Any

Json = dict[str, Any]

RESEARCH = "Find out how much rain the north and the south have for each thousand people, and write it down."
COMPETITORS = "Research competitors and draft a summary."


def step(id_: str, title: str, goal: str, worker: str, path: str, *needs: str, **more: Any) -> Json:
    """A subtask that leaves one file, and is done when that file says something."""
    check = {"criterion": f"{path} is there", "run": f"test -s {path}"}
    base = {"id": id_, "title": title, "goal": goal, "worker": worker, "touches": [path]}
    return {**base, "acceptance": [check], "depends_on": list(needs), **more}


def fetched(address: str, path: str) -> Json:
    return {"do": "fetch", "files": {path: f"http://SITE{address}"}}


def computed(region: str) -> Json:
    return {"do": "shell", "commands": [f"python3 tools/per_head.py {region}"]}


def revised(assessment: str, **operations: Any) -> Json:
    return {"assessment": assessment, **operations}


def worked(**attempts: list[Json]) -> Json:
    return {id_.replace("_", "-"): {"attempts": tried} for id_, tried in attempts.items()}


RAIN = step("rain", "Fetch the rain", "data/rain.json holds what /rain.json says.", "retrieval", "data/rain.json") | {
    "failure_action": "retry"
}
PEOPLE = step("people", "Fetch the people", "data/people.csv: thousands per region.", "retrieval", "data/people.csv")
COMPUTE = step(
    "compute", "Compute rain per head", "data/*.txt: millimetres per thousand people.", "processing", "data/*.txt"
) | {"acceptance": [{"criterion": "both are there", "run": "test -s data/north.txt && test -s data/south.txt"}]}
SUMMARY = step("summary", "Write the summary", "summary.md says it in a sentence.", "summary", "summary.md") | {
    "acceptance": [
        {
            "criterion": "it says what was computed",
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
                "revision": revised("First the raw data; what to do with it follows.", add=[RAIN, PEOPLE]),
            },
            {
                "when": {"failed": "people"},
                "revision": revised(
                    "That source is closed to us; a mirror has the same.",
                    retry=[{"id": "people", "guidance": "Take /mirror/people.csv instead. It said: {evidence}"}],
                ),
            },
            {
                "when": {"merged": ["rain", "people"]},
                "revision": revised("Both sources are in. Now the numbers.", add=[COMPUTE]),
            },
            {
                "when": {"failed": "compute", "kind": "too_complex"},
                "revision": revised(
                    "Region by region, then.",
                    split=[{"id": "compute", "why": "two regions are two computations", "into": HALVES}],
                ),
            },
            {
                "when": {"merged": ["compute-north", "compute-south"]},
                "revision": revised("The numbers are there. Now the words.", add=[SUMMARY]),
            },
        ],
        "synthesis": "The north has 30 mm for each thousand people, the south 15.",
    },
    "workers": worked(
        rain=[fetched("/rain.json", "data/rain.json")],
        people=[fetched("/people.json", "data/people.csv"), fetched("/mirror/people.csv", "data/people.csv")],
        compute=[{"do": "too_complex", "message": "Two regions, two formats: split it."}],
        compute_north=[computed("north")],
        compute_south=[computed("south")],
        summary=[
            {"do": "ask", "needs": ["Who reads it: in millimetres, or in inches?"]},
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
                "revision": revised(
                    "Five steps, one after the other.",
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
                "revision": revised(
                    "A publishes no prices. What step 1 found has to do; B's page has to carry more.",
                    drop=[{"id": "step-3", "why": "page not found: A publishes no prices"}],
                    revise=[
                        {"id": "step-4", "depends_on": ["step-2"]},
                        {
                            "id": "step-5",
                            "goal": "comparison.md: B's price, and of A what a/found.txt has, marked as second-hand.",
                            "depends_on": ["step-1", "step-4"],
                            "context": ["a/found.txt"],
                        },
                    ],
                ),
            },
        ],
        "synthesis": "Compared, with A's price second-hand: A has no pricing page.",
    },
    "workers": worked(
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
