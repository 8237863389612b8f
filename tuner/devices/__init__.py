"""Devices that compile and time configs: modelled Ascend parts, NVIDIA GPUs and Ascend NPUs."""
