"""Axis names as terms: parse and format (`3C`, `D/2`, `(H D)`, `S+T`), bind, unify. Knows nothing of operations."""
