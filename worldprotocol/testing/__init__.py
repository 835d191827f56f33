"""Testing of realms and policies: recorded logs, scenes, cases and strategies.

``worldctl policy test`` and the pytest plugin import the modules below; nothing is imported here. Only the modules of
strategies import hypothesis.
"""
