"""Calls to models: `calls.py` is the door, `answer.py` the requests and answers. Imports no other folder of the agents."""
