"""How queues fail in the field, each public report told again as a test that would fail on the queue it came from.

A test is named after the report it retells (`test_f7_...`). What it looks for is the whole kind of failure.
"""
