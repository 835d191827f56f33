"""Directory of realms: where each realm of many databases is, and how it is moved, archived and restored.

A directory is a log of its own, with events of its own (``worldprotocol.directory.events``). The command line imports
this package; it imports the API of realms and their exports.
"""
