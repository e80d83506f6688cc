"""The verbs about this machine and the program: doctor, clean, metrics, simulate, completion, help, version."""
