"""Facts by subject, and the values they contain. `facts.py` gathers them."""
