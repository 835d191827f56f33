"""Traces of a realm for OpenTelemetry (extra ``telemetry``); nothing is imported where no program uses it."""
