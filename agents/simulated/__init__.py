"""The simulated model: an HTTP server that speaks the Messages API and plays planner and workers from a script.

Everything but the thinking is real: it answers with tool calls, which the client carries out. A request is checked
(`admission.py`), read (`request.py`), answered from the script (`model.py`), encoded (`encoding.py`), sent.
Shares no code with the client of the real models, so that a mistake in one can't hide behind the same in the other.
"""
