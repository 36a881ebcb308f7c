"""What comes behind the current stage of a run, for the forecast of its end."""

from __future__ import annotations

from collections.abc import Sequence

from virnucpro.contracts import SPLITTING, Stage
from virnucpro.events import StageAhead
from virnucpro.store.ledger import Ledger

# Seconds per million open frames, measured with model type lite on two cores of a shared machine.
# Scaled by what translation took in this run; embedding takes much longer than all of them.
HOST_SECONDS = {"translation": 40, "merging": 50, "prediction": 45, "consensus": 6, "output": 15}
# Seconds per million records to read them for the report: 4.1 s of a processor, where translation
# took 3.4 s of it per million frames. Scaled in the same way.
REPORT_SECONDS = 50


def stages_ahead(later: Sequence[Stage], ledger: Ledger) -> list[StageAhead]:
    """Return what is to do in the ``later`` stages of a run, and after them for its report.

    Of an embedding stage that is the number of sequences, of a stage of the host the seconds.
    Before the frames are counted, neither is known.
    """
    receipts = {receipt.stage: receipt for _, receipt in ledger.receipts()}
    if SPLITTING not in receipts:
        return [StageAhead(item.name) for item in later]
    files = [file for file in receipts[SPLITTING].outputs if file.path.suffix == ".fa"]
    molecules = len({file.path.parent for file in files})  # they have the same frames
    frames = sum(file.rows for file in files) / max(molecules, 1)
    translation = receipts.get("translation")  # train embed has none
    scale = 1.0
    if translation and translation.seconds > 0 and frames > 0:
        scale = translation.seconds / (HOST_SECONDS["translation"] * translation.outputs[0].rows)
        scale *= 1e6
    ahead = []
    for item in later:
        if item.runs_on == "worker":
            todo = [task for task in item.plan(ledger) if not task.receipt.exists()]
            ahead.append(StageAhead(item.name, sum(task.count for task in todo)))
        elif item.name in HOST_SECONDS:
            seconds = scale * HOST_SECONDS[item.name] * frames / 1e6
            ahead.append(StageAhead(item.name, seconds=seconds))
        else:
            ahead.append(StageAhead(item.name))
    if chunking := receipts.get("chunking"):  # other runs have no report
        records = chunking.outputs[1].rows
        ahead.append(StageAhead("report", seconds=scale * REPORT_SECONDS * records / 1e6))
    return ahead
