"""Greetings are spelt well."""

import importlib
import sys
import unittest


class Greetings(unittest.TestCase):
    """What is said."""

    def test_a_greeting_names_its_person(self) -> None:
        """And is spelt well."""
        sys.path.insert(0, "src")
        said = importlib.import_module("greetings").greeting("Ann")
        assert said == "Hello, Ann!", said
