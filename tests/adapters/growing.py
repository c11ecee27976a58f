"""What every adapter's log owes to a growing conversation: each text once, and each input to be had whole."""

from journal import Journal
from journal.core.codec import open_record
from journal.core.records import CallIntent
from journal.replay.fold import fold
from tests.adapters.bench import Bench

LONG = " ".join(f"word-{number}" for number in range(200))


async def check_kept_once(bench: Bench, text: str, models: int) -> None:
    """`text` is in the intents of the run's model calls once, and in each of its `models` inputs."""
    async with Journal(bench.url) as journal:
        records = await journal.read("r", limit=1000)
    said = text.encode()
    asked = [
        record.body.count(said)
        for record in records
        if isinstance(body := open_record(record), CallIntent) and body.kind == "model"
    ]
    assert asked == [1, *[0] * (models - 1)], "the log grows with what is new"
    inputs = [call.input for call in fold(records).calls if call.kind == "model"]
    for shown in inputs:
        assert shown is not None
        assert shown.json is not None
        assert bytes(shown.json).count(said) == 1, "an input is shown as it was sent"
