"""What compiles and times: the modelled Ascend parts, NVIDIA GPUs, Ascend NPUs, and recorded landscapes."""
