"""Set-up, gate and recipes tried in the box on a commit, without a run."""
