"""Flows of a domain: steps, their checks, and suspended executions."""
