"""What compiles and times: the modelled Ascend parts, NVIDIA GPUs and Ascend NPUs."""
