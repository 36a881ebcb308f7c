"""The training of the lite encoders together with their classifier."""
