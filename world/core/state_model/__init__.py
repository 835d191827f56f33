"""State models: the JSON Schema of a state or an input, its compiled form, and its checks."""
