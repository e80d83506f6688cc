"""Facts: what happened in a run, by what they are about, and the values they hold. `facts.py` gathers them."""
