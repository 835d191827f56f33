"""``python -m worldprotocol`` is ``worldctl``."""

from worldprotocol.cli import main

if __name__ == "__main__":
    main()
