"""Commands for domains that are written in MEL, and its language server."""
