"""eml: one mail a file, one document, as readers/mail.py reads it; one bad record where it cannot be read whole."""

from collections.abc import Iterator

from pipeline.readers import mail
from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import Batch, Fields, Limits, Records
from pipeline.readers.source import Source
from pipeline.readers.whole import Unreadable, whole, whole_file


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """One document, or one bad record."""
    batch = Batch(limits)
    try:
        message = mail.parsed(whole(source, limits), fields)
    except (DamagedStream, Unreadable) as fault:
        batch.bad.append(whole_file(fault, source))
    else:
        batch.add_one(message.identity, 1, message.text, message.date)
        batch.num_attachments += message.num_attachments
    yield batch.take()
