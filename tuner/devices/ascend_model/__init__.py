"""A modelled Ascend part: the real compiler's output, timed by a discrete-event model."""
