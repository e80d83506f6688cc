"""`fleet acp`: fleet as an agent in an editor. A thin client of journals, inboxes and the functions of the verbs."""
