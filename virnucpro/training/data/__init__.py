"""A labelled data set: from genomes to frames of a training, a validation and a test part."""
