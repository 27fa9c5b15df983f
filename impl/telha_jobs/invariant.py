"""Assertions that stay on: a broken one is a bug in this library, and stopping beats writing what it leads to."""


class InvariantError(AssertionError):
    """Something that always holds did not. The call changed nothing; please report it with the message."""


def invariant(condition: bool, sentence: str, **values: object) -> None:  # noqa: FBT001  the condition is what it is about
    """Raise `InvariantError` with the sentence and the values unless the condition holds."""
    if not condition:
        told = ", ".join(f"{name}={value!r}" for name, value in values.items())
        raise InvariantError(f"{sentence} ({told})" if told else sentence)
