"""Testing policies: cases made by hand or from a log, what comes of them, and what they cover.

``worldctl policy test`` and the pytest plugin import the modules below; nothing is imported here.
"""
