#!/usr/bin/env bash
# Train the model type lite. This takes some hours on two cores; measure.sh prints its figures.
#   examples/lite/train.sh GENOMES WORK [PREVIOUS]
# GENOMES is the folder that the paths in genomes.tsv start from. WORK is a folder for the results.
# PREVIOUS is the lite_encoder.safetensors of an earlier training, with the lite_classifier.safetensors
# beside it, for the first of two encoders; without one, it is trained from nothing.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
genomes="$1" work="$2" previous="${3:-}"
prepare=(--genomes "$genomes" --content records -e 500,300,150 --test 0.03)
# mask.tsv is what stretches.py printed, with the regions that two earlier lite models found in these records.
train=(
    --threads 1 --mask "$here/mask.tsv"
    --more-of phages --more-of "phage genomes" --more-of "phages of many hosts" --more-of coliphages
    --more-of "tailed phages" --more-of Microviridae --more-of "mock virome"
    --more-of "archaeal viruses" --more-of "RefSeq phages" --more-of "small phages"
    --more-of proviruses --more-of "giant viruses" --more-of herpesviruses
)

virnucpro train prepare "$here/genomes.tsv" -o "$work/data" "${prepare[@]}" --validation 0.03
if [ -z "$previous" ]; then
    python "$here/train.py" "$work/data" -o "$work/first" "${train[@]}"
    previous="$work/first/lite_encoder.safetensors"
fi
# Two encoders that were trained apart, with one classifier, are better than either.
python "$here/train.py" "$work/data" -o "$work/second" "${train[@]}" --seed 2 --steps 14000
second="$work/second/lite_encoder.safetensors"
python "$here/join.py" "$work/both" "$previous" "$second"
python "$here/train.py" "$work/data" -o "$work/calibrated" "${train[@]}" \
    --start-from "$work/both/lite_encoder.safetensors" --steps 0
# The last steps of the first one, and the classifier, read the validation part as well, with the
# calibration of before.
awk 'BEGIN { FS = OFS = "\t" } $4 == "validation" && sub(/^outside /, "more ", $3) { $4 = "train" } 1' \
    "$here/genomes.tsv" > "$work/all.tsv"
virnucpro train prepare "$work/all.tsv" -o "$work/all" "${prepare[@]}" --validation 0
train+=(--more-of "more phages" --more-of "more virophages" --more-of "more herpesviruses")
python "$here/train.py" "$work/all" -o "$work/more" "${train[@]}" \
    --start-from "$previous" --learning-rate 0.001 --steps 2400
python "$here/join.py" "$work/joined" "$work/more/lite_encoder.safetensors" "$second" \
    --calibration "$work/calibrated/lite_classifier.safetensors"
python "$here/train.py" "$work/all" -o "$work/model" "${train[@]}" \
    --start-from "$work/joined/lite_encoder.safetensors" --steps 0
python "$here/kinds.py" fit "$work/data" "$work/model/lite_encoder.safetensors" \
    "$work/model/lite_kinds.safetensors"
# To ship it: cp "$work"/model/*.safetensors virnucpro/data/
# The rates rest on hosts that none of these trainings has read, and on viruses:
#   for length in 500 300 150; do
#       virnucpro models calibrate lite -e "$length" -o virnucpro/data/calibrations/lite_$length.calibration.json
#   done
#   rm -r virnucpro/data/calibrations/*.calibration virnucpro/data/calibrations/*.md
