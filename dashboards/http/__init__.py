"""What the servers for metrics and for pages have in common: addresses, and which hosts they answer for."""
