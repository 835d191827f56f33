"""Limits of size that cannot be configured: recorded answers depend on them. ``world.limits`` has the others.

Each is checked before the work is done that it bounds, and its refusal names it.
"""

from __future__ import annotations

from typing import Final

MAX_SCOPE_PATTERNS: Final = 10_000
"""Patterns of one scope: of an intent, of a narrowing by a rule or a person, and of what several have in common."""

MAX_SCOPE_NAMES: Final = 100_000
"""Names in all patterns of a scope that is compared with another."""

MAX_SCOPE_STEPS: Final = 2_000_000
"""Nodes of a trie that one comparison of two scopes may visit; at most a few seconds."""

MAX_MARKUP_DEPTH: Final = 200
"""Levels of lists and objects in YAML and TOML; ``world.model.immutable_json.MAX_DEPTH`` is the same for JSON."""

MAX_YAML_NODES: Final = 200_000
"""Maximum number of values of a YAML text; an alias counts as the values of its anchor."""

MAX_YAML_NUMBER_CHARS: Final = 256
"""Characters of a number in YAML; one in base 60 (`1:59:59`) is read in time by the square of its length."""

MAX_DOMAIN_BYTES: Final = 8 << 20
"""Bytes of a domain file."""

MAX_CONFIG_BYTES: Final = 1 << 20
"""Bytes of a world.toml."""

MAX_MEL_BYTES: Final = 256 << 10
"""Bytes of a MEL source; parsing one takes seconds at most."""

MAX_MEL_DEPTH: Final = 450
"""Levels of brackets, and of anything else, in MEL: JSON of ``MAX_DEPTH`` levels fits in."""
