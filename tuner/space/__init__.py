"""Problems, the space of valid configs, and the nearest valid config."""
