"""Storage behind the engine: the port (`port`), RocksDB (`rocks`) and an in-memory store with scripted faults
(`memory`).

Only this package imports rocksdict. Import the module you need; this one imports nothing, so that the port costs no
database.
"""
