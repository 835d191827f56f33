"""Testing realms and policies: recorded logs, scenes and cases as tests, and values for hypothesis.

``worldctl policy test`` and the pytest plugin import the modules below; nothing is imported here. Only the modules of
strategies import hypothesis.
"""
