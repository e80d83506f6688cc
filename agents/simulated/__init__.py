"""The simulated model: an HTTP server with the Messages API that plays planner and workers from a script.

Only the thinking is simulated: it answers with tool calls that the client carries out. A request is checked
(`admission.py`), parsed (`prompt.py`), answered from the script (`planner.py`, `worker.py`), encoded (`encoding.py`)
and sent (`server.py`). It does not share code with the model client, so that they can't have the same mistake.
"""
