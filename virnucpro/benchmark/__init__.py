"""How fast the encoders and the host stages are here, beside other implementations."""
