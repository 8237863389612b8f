"""The compiler's scheduled code as a small tree, and the arithmetic of its scalar operations."""
