"""Facts of the executable specification, one per test."""
