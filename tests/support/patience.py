"""How long tests wait for what has to happen: a limit against waiting for ever, and never a measure.

A machine with far more to do than cores delays everything many times over. No test passes or fails by the time that
something took; one that waits in vain ends after this time and fails.
"""

PATIENCE_S = 240.0
"""Longest wait of a test, in seconds."""
