"""Remove signatures from mail. Off unless asked for; meant for sources of mail.

Changes  from a line "-- " to the end of the part (at most 15 lines); a closing such as "С уважением," or "Best
         regards," with the few short lines after it; "Sent from my iPhone".
Why      names, telephones and advertisements, the same under every mail.
Misses   a name alone in the last line, with no closing above it.
"""

from pipeline.transforms import mail_parts
from pipeline.transforms.transform import Transform

TRANSFORM = Transform(
    name="signatures",
    off="keep",
    code_points=lambda: map(ord, "-,.!уУmMtTsSвВgG"),
    apply=lambda text: mail_parts.without(text, mail_parts.SIGNATURE),
    examples=(
        (
            "Счёт оплачен.\n\n-- \nС уважением,\nбухгалтерия\nтел. +7 000 000-01-23",
            "Счёт оплачен.",
        ),
        (
            "It works.\n\nBest regards,\nJohn Doe\nExample Ltd",
            "It works.",
        ),
        (
            "Ок.\n\nОтправлено с iPhone",
            "Ок.",
        ),
        (
            "Cheers to all who helped with the release and its many small bugs.",
            "Cheers to all who helped with the release and its many small bugs.",
        ),
    ),
)
