"""Waiting for proposals to be decided and to end."""
