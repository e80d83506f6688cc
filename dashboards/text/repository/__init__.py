"""How a repository does in the box, as text: why set-up or gate failed, what a rehearsal showed."""
