"""Execute compiled Ascend programs, and find races and wrong results."""
