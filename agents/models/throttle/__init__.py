"""What delays calls: rate limiters, circuit breakers and their order, shared by all callers of a service."""
