"""Training the small encoders and their classifier."""
