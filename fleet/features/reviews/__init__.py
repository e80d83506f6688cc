"""Reviews of changes by models that did not make them."""
