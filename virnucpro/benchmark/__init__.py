"""Measure how fast the encoders and the host stages are, beside other implementations."""
