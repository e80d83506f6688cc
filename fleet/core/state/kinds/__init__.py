"""The facts by what they are about: run, plan, attempts, landing, people. `facts.py` above is the door."""
