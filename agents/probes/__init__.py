"""What `fleet doctor --live` asks of a models' service: the calls that could break, for less than a cent."""
