"""Archives: stretches of a log in folders of files that are checked without the log."""
