"""The engine of a run: it records reports, makes decisions and carries out commands (`perform.py`).

Uses `fleet.core` and `fleet.ports`. Independent of adapters, file formats and screens.
"""
