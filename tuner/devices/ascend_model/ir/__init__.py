"""The compiler's scheduled code as a small tree, and what its scalar operations compute."""
