"""The calls of an attempt on a node: asked for on its line, made at its desk, and shortened on the way."""
