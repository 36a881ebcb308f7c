#!/usr/bin/env bash
# Print the tables of docs/lite.md and docs/regions.md, of the model type lite as it is installed.
#   examples/lite/measure.sh DATASET WORK
# DATASET was made by `virnucpro train prepare` from genomes.tsv (train.sh). WORK is a folder for
# the results. This takes about 20 minutes on two cores.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
dataset="$1" work="$2"
pieces="$work/pieces" predicted="$work/predicted"
python "$here/heldout.py" "$dataset" "$pieces" --most 400
for length in 150 300 500 2100 5000; do
    chunk=$((length > 500 ? 500 : length))
    virnucpro predict "$pieces/pieces_$length.fa" -o "$predicted" -m lite -e "$chunk" --force
done
virnucpro predict "$pieces/mates_1.fa" --input2 "$pieces/mates_2.fa" -o "$predicted" -m lite -e 150 --force
virnucpro predict "$dataset/test_records.fa" -o "$predicted" -m lite --force
python "$here/outside.py" "$dataset" "$pieces" "$predicted"
python "$here/kinds.py" figures "$pieces"
python "$here/mixtures.py" figures "$dataset/genomes.tsv" "$predicted/test_records_run.json"
python "$here/mixtures.py" figures --records 800 "$pieces/labels.tsv" \
    "$predicted"/{mates_1,pieces_150}_run.json
python "$here/regions.py" "$dataset" "$work/regions" -m lite -e 500
