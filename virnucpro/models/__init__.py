"""Models on disk: which there are, where they lie, how they get there, whether they are intact."""
