"""Everything that can end a run, each with the exit code that a script sees.

Exit 0 is success and 2 is partial success: some sequences failed, the rest is there.
The message of each error says what happened, where, and what to do about it.
"""

EXIT_OK = 0
EXIT_PARTIAL = 2


class VirNucProError(Exception):
    """The root: an error whose message is written for the user."""

    exit_code = 1


class NothingToResumeError(VirNucProError):
    """A finished run of version 1, which cannot be continued and does not have to be."""

    exit_code = EXIT_OK


class UsageError(VirNucProError):
    """The command line or the configuration file cannot be carried out as given."""

    exit_code = 64


class ModelError(UsageError):
    """A weights, tokenizer or classifier file is missing, damaged or does not fit."""


class InputError(VirNucProError):
    """The sequences cannot be used. The message names file, line and record."""

    exit_code = 65


class ResumeRefusedError(VirNucProError):
    """Continuing would mix results of two different runs."""

    exit_code = 3


class DeviceError(VirNucProError):
    """A compute device that was asked for is not there, or was lost."""

    exit_code = 4


class LockedError(VirNucProError):
    """Another process is working on the same input in the same output directory."""

    exit_code = 5


class OutputError(VirNucProError):
    """Nothing can be written: disk full, quota, read-only or no permission."""

    exit_code = 6


class RunInterruptedError(BaseException):
    """A signal asked the run to stop. Everything finished so far is kept.

    As KeyboardInterrupt, it is no Exception: a signal may come in a library that takes every
    Exception for a damaged file.
    """

    def __init__(self, signal_number: int) -> None:
        """``signal_number`` 2 (SIGINT) exits 130; every other one exits 143 (SIGTERM)."""
        super().__init__("interrupted; run the same command again, without --force")
        self.signal_number = signal_number
        self.exit_code = 130 if signal_number == 2 else 143
