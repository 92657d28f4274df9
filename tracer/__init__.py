"""Shape Tracer: every tensor operation of a model as it really ran, with its axes by name."""
