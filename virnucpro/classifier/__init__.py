"""The classifier: its files, its scores, and the encoders it belongs to."""
