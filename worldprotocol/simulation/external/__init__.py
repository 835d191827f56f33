"""Simulation of external effects: workers outside that lose, delay, double and forge their reports."""
