"""Launch kernels with stored configs: `tuned`, `Operator`, and how a config is chosen for a call."""
