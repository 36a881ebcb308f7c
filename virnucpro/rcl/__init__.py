"""The RCL predictor: where the reactive center loop of a serpin lies in its sequence."""
