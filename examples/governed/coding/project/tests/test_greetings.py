"""Greetings are spelt well."""

import sys
import unittest

sys.path.insert(0, "src")
from greetings import greeting


class Greetings(unittest.TestCase):
    """What is said."""

    def test_a_greeting_names_its_person(self) -> None:
        """And is spelt well."""
        self.assertEqual(greeting("Ann"), "Hello, Ann!")
