"""Calls to models: `calls.py` is the door, `answer.py` the requests and answers that all folders below share.

Imports nothing else of the agents but texts and transcripts.
"""
