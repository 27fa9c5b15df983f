"""The server: in this process on a free port, or `telha serve` as a process of its own."""
