"""Adds an entry to the change log: reads the whole file, waits for Enter as an editor does, and writes it back."""

import sys
from pathlib import Path

changes, entry = Path("CHANGES.rst"), sys.argv[1]
text = changes.read_text()
print("read", flush=True)
sys.stdin.readline()
changes.write_text(f"{text}- {entry}\n")
