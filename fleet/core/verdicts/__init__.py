"""What a verdict rests on: the files that judge a change, the tests that must have run, and what a person should see.

Pure. Cheats of verdicts that it knows are played by `python -m chaos.cheats`.
"""
