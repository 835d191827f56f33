"""MEL: domains as text. Compiles MEL source to the portable schema, formats it, and prints a schema as MEL.

Nothing imports this package but the readers of ``.mel`` files, at the time they read one; it is the only user of Lark.
Source: the MEL examples of the intent specification; docs/reference/mel.md.
"""
