"""A queue that a server owns, used like one's own: `connect` and `connect_async`.

Being written by whoever wrote `telha_jobs.settings` and `telha_jobs.metrics`.
"""
