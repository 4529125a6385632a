"""Remove legal disclaimers and list footers from mail. Off unless asked for; meant for sources of mail.

Changes  paragraphs at the end about confidentiality, wrong recipients and viruses; a mailing list's footer.
Why      one text under a million mails, and near-duplicate removal sees only whole documents.
"""

from pipeline.transforms import mail_parts
from pipeline.transforms.transform import Transform

TRANSFORM = Transform(
    name="disclaimers",
    off="keep",
    code_points=lambda: map(ord, "cCvVrRuUоО"),
    apply=lambda text: mail_parts.without(text, mail_parts.DISCLAIMER),
    examples=(
        (
            "The fix is in 2.4.\n\nThis e-mail is confidential and intended solely for the addressee.",
            "The fix is in 2.4.",
        ),
        (
            "Готово.\n\nЭто сообщение и вложения конфиденциальны и предназначены исключительно для адресата.",
            "Готово.",
        ),
        (
            "Try it.\n\n______________________\nUSRP-users mailing list\nusrp-users@lists.ettus.com",
            "Try it.",
        ),
        (
            "Confidential data must not be mailed: use the vault.",
            "Confidential data must not be mailed: use the vault.",
        ),
    ),
)
