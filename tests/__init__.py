"""The tests: a package, so that no stray `tests` on the path stands in for it. The harness is `tests.harness`."""
