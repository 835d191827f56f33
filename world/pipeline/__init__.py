"""The stages from an intent to a sealed World; foreign code is called before the log's lock."""
