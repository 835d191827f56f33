"""The public API of a realm and its composition."""
