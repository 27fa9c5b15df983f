"""scripts/demo: real documents through a queue whose process is killed twice, and the proof from its rows.

`__main__` is the command. `lives` starts the queue's process and kills it; `child` is that process: it walks, enqueues
and works. `documents` and `embedding` are the work itself, pure but for reading files. `history` reads event logs,
`proof` holds them against the promises, `screen` and `picture` show what happened.
"""
