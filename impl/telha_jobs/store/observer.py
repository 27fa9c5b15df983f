"""What a store tells whoever measures it. Without an observer it costs one comparison for each commit and sync."""

from typing import Literal, Protocol

StoreOperation = Literal["read", "write", "sync"]


class StoreObserver(Protocol):
    """Called by the store, in the thread that did it. An implementation is quick, never raises, and calls nobody."""

    def wrote(self, size_bytes: int) -> None:
        """A commit was written, under the store's lock; it is not durable yet."""
        ...

    def synced(self, seconds: float) -> None:
        """A sync ended well; they never overlap."""
        ...

    def failed(self, operation: StoreOperation) -> None:
        """The storage failed: this store takes no more calls."""
        ...
