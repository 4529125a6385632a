"""Remove the headers of a forwarded mail. Off unless asked for; meant for sources of mail.

Changes  the line "---- Forwarded message ----" and the From, Date, Subject and To lines of what is forwarded go.
Why      they name people and times, and look like the mail's own.
Keeps    the forwarded text itself.
"""

from pipeline.transforms import mail_parts
from pipeline.transforms.transform import Transform

TRANSFORM = Transform(
    name="forwarded_headers",
    off="keep",
    code_points=lambda: map(ord, ":-"),
    apply=lambda text: mail_parts.without(text, mail_parts.FORWARD),
    examples=(
        (
            '-------- Пересылаемое сообщение --------\n05.03.2024, 09:40, "Склад" <s@b.org>:\n\nНакладная во вложении.',
            "Накладная во вложении.",
        ),
        (
            "See:\n\n------ Forwarded message -----\nFrom: A <a@b.org>\nDate: Tue, Mar 5\nSubject: x\n\nThe text.",
            "See:\n\nThe text.",
        ),
    ),
)
