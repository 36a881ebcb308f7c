"""Models on disk: which there are, where they are, how they get there, whether they are intact."""
