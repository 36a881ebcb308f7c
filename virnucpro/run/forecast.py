"""What comes behind the current stage of a run, for the forecast of its end."""

from __future__ import annotations

from collections.abc import Sequence

from virnucpro.contracts import SPLITTING
from virnucpro.events import StageAhead
from virnucpro.run.features import frames_of_files
from virnucpro.run.run import Run

# Seconds per million open frames, measured with model type lite on two cores of a shared machine.
# Scaled by what translation took in this run; embedding takes much longer than all of them.
HOST_SECONDS = {"translation": 40, "merging": 50, "prediction": 45, "consensus": 6, "output": 15}
# Seconds per million records to read them for the report: 4.1 s of a processor, where translation
# took 3.4 s of it per million frames. Scaled in the same way.
REPORT_SECONDS = 50


def stages_ahead(run: Run, position: int, files: Sequence[int] | None) -> list[StageAhead]:
    """Return what is to do behind the stage at ``position``, or behind its part for ``files``.

    Of an embedding stage that is the number of sequences, of a stage of the host the seconds; the
    report comes last. Before the frames are counted, nothing is known.
    """
    later = run.stages[position + 1 :]
    receipts = {receipt.stage: receipt for _, receipt in run.ledger.receipts()}
    if SPLITTING not in receipts:
        return [*(StageAhead(stage.name) for stage in later), *run.others_ahead]
    frames = frames_of_files(run)
    if files is not None:
        present = sum(frames[number - 1] for number in files)
        pending = sum(frames[number - 1] for number in run.unscored or ())
        own = [
            StageAhead(stage.name, pending + (present if number > position else 0))
            for number, stage in enumerate(run.stages)
            if stage.runs_on == "worker"
        ]
        return [*own, *run.others_ahead]
    translation = receipts.get("translation")  # train embed has none
    scale = 1.0
    if translation and translation.seconds > 0 and any(frames):
        scale = translation.seconds / (HOST_SECONDS["translation"] * translation.outputs[0].rows)
        scale *= 1e6
    ahead = []
    for stage in later:
        if stage.runs_on == "worker":
            todo = [task for task in stage.plan(run.ledger) if not task.receipt.exists()]
            ahead.append(StageAhead(stage.name, sum(task.count for task in todo)))
        elif stage.name in HOST_SECONDS:
            seconds = scale * HOST_SECONDS[stage.name] * sum(frames) / 1e6
            ahead.append(StageAhead(stage.name, seconds=seconds))
        else:
            ahead.append(StageAhead(stage.name))
    if chunking := receipts.get("chunking"):  # other runs have no report
        records = chunking.outputs[1].rows
        ahead.append(StageAhead("report", seconds=scale * REPORT_SECONDS * records / 1e6))
    return [*ahead, *run.others_ahead]
