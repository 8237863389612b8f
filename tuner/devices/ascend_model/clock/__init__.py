"""A discrete-event clock for compiled Ascend programs."""
