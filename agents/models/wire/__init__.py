"""One call over HTTP: its parameters, its stream, its answer or its fault. Only `claude.py` here knows the SDK."""
