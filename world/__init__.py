"""The floor: values, identity, the log, replay, and the judgement of time and concurrency.

It imports none of the rooms (projections, authority, host); each of them imports it.
"""
