"""What carries out one command each: attempts, landing, planner calls; `perform.py` is the door."""
