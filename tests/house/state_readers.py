"""Modules outside the core, the engine and the read model that read the state of a run, each with its reason.

The list only gets shorter. Whoever looks at a run asks `fleet/read`.
"""

READS_STATE = {
    # passes it on
    "fleet/ports/journal.py": "the port through which the engine gets it",
    "fleet/runs/run_folder.py": "folds the facts of a journal into it",
    "fleet/cli/common.py": "loads it for verbs, with the configuration that the run began with",
    # creates, resumes or lands runs, as a part of the engine
    "fleet/app/fleet.py": "creates and resumes runs",
    "fleet/features/reviews/reviews.py": "asks for the reviews of a change, as a part of the engine",
    "fleet/features/merge/relanding.py": "makes the plan of a run that lands a result again",
    "fleet/features/merge/merge_result.py": "creates and resumes such runs",
    "fleet/features/nodes/manager_side.py": "opens the nodes of a run for its engine",
    "fleet/features/nodes/placement.py": "decides where an attempt works",
    "fleet/features/nodes/remote_node.py": "says why a node takes no attempt",
    "fleet/features/rehearse/carry_out.py": "creates and resumes rehearsals",
    "fleet/features/rehearse/past_tasks.py": "takes the place of workers and judges in a rehearsal",
    "fleet/features/rehearse/rehearsing.py": "compares what landed with the commits of history",
    # shows what no other face does
    "fleet/features/rehearse/rehearsal_view.py": "shows facts that only rehearsals have",
    "fleet/features/audit/audit.py": "judges each fact against what was true before it",
    "fleet/features/audit/audit_view.py": "shows reviews and attempts of a commit as they were when it landed",
}
