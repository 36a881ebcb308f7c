"""Read sequences, cut them into chunks and translate them. Nothing here imports torch."""
