"""The version of the program, which every result names."""

__version__ = "2.0.0"
