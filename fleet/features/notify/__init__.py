"""Notifications of a run to channels: webhooks, commands, the desktop."""
