"""How the fastest config is found."""
