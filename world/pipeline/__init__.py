"""The stages from an intent to a sealed World, each under the log's lock."""
