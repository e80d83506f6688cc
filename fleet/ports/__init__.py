"""What the engine needs of the world, as protocols and domain types. Enters `fleet.core`; knows no adapter."""
