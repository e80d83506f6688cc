"""The program and this machine: version and verbs, servers, what the doctor found, what a clean-up deletes."""
