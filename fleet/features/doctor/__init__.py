"""Whether this machine can run a fleet, with a fix for each problem."""
