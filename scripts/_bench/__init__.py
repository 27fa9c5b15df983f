"""scripts/bench: what an operation costs, in counts and in times, with a limit beside every figure that has one.

`__main__` is the command, `runner` runs the cases. `measure` holds the values: spans, figures, limits. `probe` counts,
records and replays what the storage is asked for; `place` opens queues and fills them; `child` is a process of its own,
for what needs a fresh or a dying one. Cases: `cycle` and `syncs` (against bare rocksdict), `grants`, `sweeps`,
`opening`, `endurance`, `amounts` (counts, no times), and `service` over the wire: `hosts` starts the servers, `peer` is
the one to compare with, `caller` the client, each a process. `guard` holds recorded counts; `report` and `plots` write
docs/performance.md. `settings` is a command of its own: RocksDB's settings beside each other, for ADR 4.
"""
