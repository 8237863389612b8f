"""Studies of a fleet: many devices, workers and a queue, on devices that replay recorded times."""
