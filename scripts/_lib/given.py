"""What several commands take: numbers, checked for argparse."""

import argparse


def positive(text: str) -> int:
    """An int of 1 or more, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number
