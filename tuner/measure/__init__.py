"""Launch, time and verify a config; the statistics behind a time."""
