"""The queue over gRPC: the wire (`v1/jobs.proto`, `wire`, `status`) and the server.

Needs the extra `[server]`; nothing below imports this package. `docs/server.md` shows it at work.
"""
