"""Bugs that a machine makes: the operators of Cosmic Ray on the queue's core, agenda and engine, each change tried in a
fast lane. See `scripts/mutate --help`; the catalogue made by hand is `tests.harness.mutants`.
"""
