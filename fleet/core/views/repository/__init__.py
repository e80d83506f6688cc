"""A repository without a run of its epics: how it is tested, what a trial and a rehearsal showed, and their logs."""
