"""`fleet acp`: an editor drives the fleet. A thin client of journals, inboxes and the verbs' own functions."""
