"""The queue under fire: processes killed, logs cut, disks full, clocks stepped, bytes flipped, and what is left of it.

`frame` is what every lane has in common, `lanes` lists them, `history` is the record that a lane keeps outside the
database; `python -m tests.chaos` is scripts/chaos. A lane is a module with a `LANE`; its tests stand in
`test_<lane>.py` beside it.
"""
