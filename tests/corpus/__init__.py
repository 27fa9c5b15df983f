"""Traces with their verdict, replayed first of all tests. docs/traces.md tells how one is read and how one is added."""
