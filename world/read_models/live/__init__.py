"""The live state of a log in a process: loading it, following the log, and publishing it to readers."""
