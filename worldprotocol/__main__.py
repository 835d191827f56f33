"""``python -m worldprotocol`` is ``worldctl``."""

from worldprotocol.cli.main import main

if __name__ == "__main__":
    main()
