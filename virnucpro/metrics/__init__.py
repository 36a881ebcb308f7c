"""Metrics of a two-class classifier, used by training and by evaluation."""
