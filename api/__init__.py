"""How results are served: the REST service."""
