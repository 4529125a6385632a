"""Remove the quoted mail from a reply. Off unless asked for; meant for sources of mail.

Changes  lines marked with ">", the attribution above them, and, where the client marks nothing, all that follows an
         attribution or an Outlook header ("От: / Отправлено: / Кому: / Тема:") under text of one's own.
Why      in a thread every mail repeats all those before it.
Keeps    answers between and below marked lines; the text of a forwarded mail.
Misses   an answer below a quote that nothing marks: it is taken for the quote.
"""

from pipeline.transforms import mail_parts
from pipeline.transforms.transform import Transform

TRANSFORM = Transform(
    name="quoted_replies",
    off="keep",
    code_points=lambda: map(ord, ">:"),
    apply=lambda text: mail_parts.without(text, mail_parts.QUOTE),
    examples=(
        (
            "Обновил, печатает.\n\n5 марта 2024 г. в 09:40, A <a@b.org> написал(а):\n> Обновите.\n>> Не печатает.",
            "Обновил, печатает.",
        ),
        (
            "> Which version?\n2.4.1\n> Which system?\nDebian 12",
            "2.4.1\nDebian 12",
        ),
        (
            "Сброшен.\n\n__________\nОт: Иванов\nОтправлено: 5 марта\nКому: Поддержка\nТема: Пароль\n\nПрошу сбросить.",
            "Сброшен.",
        ),
        (
            "Subject: Fwd: x\n\nFrom: a@b.org\nSent: Monday\nTo: c@d.org\nSubject: x\n\nThe text.",
            "Subject: Fwd: x\n\nFrom: a@b.org\nSent: Monday\nTo: c@d.org\nSubject: x\n\nThe text.",
        ),
        (
            "Он написал: всё хорошо.\nЕщё строка.",
            "Он написал: всё хорошо.\nЕщё строка.",
        ),
    ),
)
