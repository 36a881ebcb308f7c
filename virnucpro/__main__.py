"""``python -m virnucpro`` and the ``virnucpro`` command."""

import io
import sys

SIGINT_CODE = 130  # of ``errors.RunInterruptedError``, which may not be imported yet


def main() -> None:
    """Entry point of the ``virnucpro`` command.

    Ctrl-C ends it with a message, also while modules are imported.
    """
    for stream in (sys.stdout, sys.stderr):
        # A file name that the terminal's encoding lacks must not end a run.
        if isinstance(stream, io.TextIOWrapper):  # None where it was closed
            stream.reconfigure(errors="backslashreplace")
    try:
        from virnucpro.cli import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("virnucpro: interrupted\n")
        sys.exit(SIGINT_CODE)


if __name__ == "__main__":
    main()
