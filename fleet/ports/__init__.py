"""The interfaces through which the engine reaches the outside world: protocols and domain types, without adapters."""
