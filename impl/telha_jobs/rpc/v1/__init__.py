"""Package `telha.jobs.v1`: the .proto, which is the wire's documentation, and the code generated from it."""
