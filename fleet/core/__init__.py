"""The pure core: facts, state and decisions, without I/O, clock or randomness.

`base` ← `plans` ← `facts` ← `state` ← `history` and `policy`.
"""
