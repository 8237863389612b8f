"""What is tuned: the kernel contract, the kernels of the project, and how either is found by name."""
