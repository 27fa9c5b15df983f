"""Tests of the metrics; they need the extra [server]."""
