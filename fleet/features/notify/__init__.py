"""Run notifications over webhooks, commands and the desktop."""
