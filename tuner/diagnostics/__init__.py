"""Step-by-step checks of a device, and the fit of a modelled part to a chip."""
