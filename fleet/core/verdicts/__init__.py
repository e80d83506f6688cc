"""The basis of verdicts: files that judge a change, tests that must run, and suspicious code to report.

Pure. `python -m chaos.cheats` plays the cheats that these modules detect.
"""
