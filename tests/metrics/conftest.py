"""The queue of the interface tests."""

from tests.unit.api.conftest import clock, opened, queue

__all__ = ["clock", "opened", "queue"]
