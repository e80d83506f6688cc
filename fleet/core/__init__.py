"""The pure core: facts, state, decisions. No I/O, no clock, no chance; it imports nothing but itself.

`base` ← `plans` ← `facts` ← `state` ← `history` and `policy`.
"""
