"""Calls to models: one request in, one answer or one named fault out; rate limits, outages, retries and prices.

Imports nothing else of the agents but texts and transcripts. Only `claude.py` knows the SDK.
"""
