"""What the process that forks commands has imported (see ``forked``)."""

# ruff: noqa: F401

import gc
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: threads do not survive a fork

import matplotlib.backends.backend_svg
import matplotlib.figure
import sklearn.metrics
import torch._dynamo

import virnucpro.cli.predict
import virnucpro.encoders.dnabert_s
import virnucpro.encoders.esm2
import virnucpro.encoders.lite
import virnucpro.encoders.toy
import virnucpro.evaluation.plots
import virnucpro.report.page
import virnucpro.run.predict
import virnucpro.stages.kinds
import virnucpro.stages.output
import virnucpro.ui.terminal

virnucpro.stages.output.gene_finder()
virnucpro.stages.kinds.virus_kinds()

gc.collect()
gc.freeze()  # what is imported is never garbage, and to look at it copies it into each process
