"""Contents of the files that agents read and write: their hashes, their history in the log, and lost updates."""
