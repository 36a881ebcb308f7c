"""Training the classifier on the features of a data set."""
