"""A labelled data set: genomes to frames of a training, a validation and a test part."""
