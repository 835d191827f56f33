"""Agents under the engine: each call of a tool is an intent, and its performance an effect of that intent.

``tool_calls`` is the mechanism; hooks of coding agents and adapters of frameworks use it.
"""
