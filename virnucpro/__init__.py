"""VirNucPro: find viral sequences in sequencing data."""

__version__ = "2.0.0"
