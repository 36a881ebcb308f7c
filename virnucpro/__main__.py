"""``python -m virnucpro`` and the ``virnucpro`` command."""

from virnucpro.cli import main

if __name__ == "__main__":
    main()
