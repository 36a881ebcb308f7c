"""How good predictions are on records of known origin."""
