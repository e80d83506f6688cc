"""Servers of the Model Context Protocol that the operator chose, as tools of workers. The manager speaks to them."""
