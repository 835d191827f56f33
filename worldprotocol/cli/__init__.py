"""The command line ``worldctl``: one file per command, each imported when it is run."""
