"""Calls to models: `calls.py` is the door, `answer.py` the requests and answers."""
