"""Telha: a durable job queue on RocksDB with fenced leases."""
