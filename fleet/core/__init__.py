"""The pure core: facts, state, decisions and views. No I/O, no clock, no chance; it imports nothing but itself.

`base` ← `plans` ← `facts` ← `state` ← `history` and `policy` ← `views` ← `audit`.
"""
