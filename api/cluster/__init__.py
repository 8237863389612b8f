"""A fleet on a Ray cluster: an actor for each device that a node offers, which runs jobs of the database."""
