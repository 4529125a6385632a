# ruff: noqa: E501, RUF005 - sentences and values, a kind a line
"""The labelled set for redaction: sentences as they stand in tickets, mails and manuals, Russian and English.

What has to go is marked as ⟦rule:value⟧. Sentences without a mark hold what must stay: versions, order numbers, dates,
hashes, man-page sections, identifiers with a wrong check digit. Values with check digits are computed from seeded
digits.
"""

import random
import re
from collections import Counter

from pipeline.redaction import RULES, redact_text
from pipeline.redaction.inn import is_inn
from pipeline.redaction.rule import luhn

MARK = re.compile(r"⟦(\w+):([^⟧]*)⟧")


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


def _card(rng: random.Random) -> str:
    start = rng.choice(["4276", "5469", "2202", "4111", "2200", "5213"])
    body = start + _digits(rng, 11)
    number = next(body + digit for digit in "0123456789" if luhn(body + digit))
    return rng.choice([number, " ".join(re.findall("....", number)), "-".join(re.findall("....", number))])


def _inn(rng: random.Random, count: int) -> str:
    while True:
        number = str(rng.randrange(1, 10)) + _digits(rng, count - 1)
        if is_inn(number):
            return number


def _snils(rng: random.Random) -> str:
    body = "1" + _digits(rng, 8)
    check = sum((9 - index) * int(digit) for index, digit in enumerate(body)) % 101 % 100
    return f"{body[:3]}-{body[3:6]}-{body[6:]} {check:02d}"


def _iban(rng: random.Random) -> str:
    country, length = rng.choice([("DE", 22), ("AT", 20), ("LV", 21), ("EE", 20)])
    body = ("HABA" if country == "LV" else "") + _digits(rng, length - 4 - 4 * (country == "LV"))
    moved = "".join(str(int(character, 36)) for character in body + country + "00")
    number = f"{country}{98 - int(moved) % 97:02d}{body}"
    return rng.choice([number, " ".join(re.findall(".{1,4}", number))])


def _phone(rng: random.Random) -> str:
    a, b, c, d = _digits(rng, 3), _digits(rng, 3), _digits(rng, 2), _digits(rng, 2)
    code = rng.choice(["495", "812", "916", "903", "383", "926"])
    return rng.choice(
        [
            f"+7 ({code}) {b}-{c}-{d}",
            f"8 ({code}) {b}-{c}-{d}",
            f"8-{code}-{b}-{c}-{d}",
            f"+7{code}{b}{c}{d}",
            f"+7 {code} {b} {c} {d}",
        ]
        + [
            f"8 {code} {b}-{c}-{d}",
            f"89{code[1:]}{a}{b}{c[0]}"[:11],
            f"+49 30 {a}{b}",
            f"+1-415-{b}-{c}{d}",
            f"({code}) {b}-{c}-{d}",
        ]
    )


def _email(rng: random.Random) -> str:
    name = rng.choice(
        ["ivan.petrov", "support", "a_smirnova", "o'brien", "j.doe+jira", "i-sidorov", "buh1", "zakaz.2024"]
    )
    return (
        name
        + "@"
        + rng.choice(["mail.ru", "example.org", "corp.example.co.uk", "firma-sever.ru", "gmail.com", "почта.рф"])
    )


def _ip(rng: random.Random) -> str:
    return rng.choice(
        [f"192.168.{rng.randrange(256)}.{rng.randrange(1, 255)}", f"10.{rng.randrange(256)}.0.{rng.randrange(1, 255)}"]
        + [f"{rng.randrange(46, 223)}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"]
        + [
            f"2a02:6b8::{rng.randrange(1, 9)}:{rng.randrange(16, 4096):x}",
            f"fe80::{rng.randrange(4096, 65535):x}:12ff:fe34:{rng.randrange(4096, 65535):x}",
        ]
    )


def _mixed(rng: random.Random, count: int) -> str:
    return "a1B2c3D4e5" + "".join(
        rng.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(count - 10)
    )


def _key(rng: random.Random) -> str:
    upper = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(15)) + "7"
    return rng.choice(
        [
            "AKIA" + upper,
            "ghp_" + _mixed(rng, 36),
            "glpat-" + _mixed(rng, 20),
            "xoxb-" + _digits(rng, 12) + "-" + _mixed(rng, 24),
        ]
        + ["sk_live_" + _mixed(rng, 24), "AIza" + _mixed(rng, 35), "hf_" + _mixed(rng, 34), "npm_" + _mixed(rng, 36)]
        + [f"eyJ{_mixed(rng, 20)}.eyJ{_mixed(rng, 40)}.{_mixed(rng, 43)}"]
    )


def _block(rng: random.Random) -> str:
    kind = rng.choice(["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "])
    body = "\n".join(_mixed(rng, 64) for _ in range(3))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def _passport(rng: random.Random) -> str:
    series, number = _digits(rng, 4), _digits(rng, 6)
    return rng.choice(
        [
            f"{series} {number}",
            f"{series[:2]} {series[2:]} {number}",
            f"{series[:2]} {series[2:]} № {number}",
            f"{series} № {number}",
        ]
    )


# Sentences by rule; {} is where the value goes.
MARKED = {
    "email": (_email, ["Пишите на {}.", "<{}> wrote:", "Ответ ушёл {}, копия бухгалтерии", "mailto:{}", "From: Ivan <{}>", "contact {} or call"]),
    "phone": (_phone, ["Мой номер {}, звоните", "тел. {}", "Tel: {}", "позвоните по {} после обеда", "WhatsApp {}", "Контакт: {} (Анна)", "call me at {}"]),
    "ip_address": (_ip, ["не пингуется {}", "вход с адреса {} отклонён", "server {} is down", "Failed password from {} port", "хост {}: нет ответа", "[{}] connected"]),
    "payment_card": (_card, ["карта {}", "оплатил картой {}, деньги не пришли", "card number: {}.", "Списали дважды с {}!"]),
    "iban": (_iban, ["IBAN {}", "Конто: {}.", "please transfer to {} by Friday", "счёт {} в банке"]),
    "inn": (lambda rng: _inn(rng, rng.choice([10, 12])), ["ИНН {}", "ИНН: {}, ОГРН есть", "ИНН организации {}", "ИНН/КПП {}/773601001", "наш ИНН — {}", "INN {}"]),
    "snils": (_snils, ["СНИЛС {}", "снилс: {}", "страховой номер {}", "СНИЛС сотрудника — {}, проверьте"]),
    "passport": (_passport, ["паспорт {}", "Паспорт: {} выдан ОВД", "паспорт серии {}", "паспортные данные: {}", "серия {}"]),
    "api_key": (_key, ["ключ {} утёк", "export TOKEN={}", "Authorization: Bearer {}", "в конфиге лежит {}", 'key: "{}"']),
    "private_key": (_block, ["вот ключ:\n{}\nчто не так?", "{}"]),
    "url_password": (
        lambda rng: rng.choice(["s3cr3t", "Qwerty!23", "пароль1", "p%40ss", "zX9#k"]),
        ["postgres://app:{}@db.example.org:5432/x", "ftp://user:{}@10.20.30.40/".replace("10.20.30.40", "files.local"), "https://bot:{}@git.example.org/r.git", "amqp://guest:{}@mq/"],
    ),
}  # fmt: skip
PER_RULE = 40

KEPT = """\
Версия 10.0.19041.1 и 2.4.1.0, Chrome 120.0.6099.109|заказ № 4276123412341234 оплачен|счёт 40702810900000012345 от 05.03.2024
Заказ 7712345678 в пути|см. ls(1), mount(8) и systemd.unit(5)|commit 9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c|md5 d41d8cd98f00b204e9800998ecf8427e
2024-03-05 10:15:00,123 INFO started|05.03.2024 09:40|1711965600 1711965600123|20240305101500.log|ISBN 978-5-699-12014-7|ISBN 5-02-013850-9
systemctl status getty@tty1.service|npm i left-pad@1.3.0 @types/node@20.1.0|icon@2x.png|git clone git@github.com:me/it.git|user@localhost
127.0.0.1:8080 и 0.0.0.0, маска 255.255.255.0|OID 1.3.6.1.4.1.2021|раздел 4.2.1.3 инструкции|RFC 2616, RFC 5321|bug #1234567, CVE-2024-12345
00:1A:2B:3C:4D:5E|std::vector<int>|10:15:00|Foo::Bar::baz|ИНН 7712345672|ИНН 123456789|СНИЛС 112-233-445 96|КПП 773601001|ОГРН 1027700132195
карта 4276 1234 1234 1234|4111111111111112|артикул 5469380012345678901|id=550e8400-e29b-41d4-a716-446655440000|паспорт изделия 2024 года
серия 12, номер 5|паспорт качества № 15|сеть 2х100 Мбит/с, 16 портов|в размере 1 234 567,89 руб.|население 8 123 456 789 человек|ГОСТ 34.602-2020
api_key=YOUR_API_KEY_GOES_HERE|token = get_token_from_environment()|password: <password>|https://user:${PASSWORD}@host/|sk-learn и sk_buff
-----BEGIN CERTIFICATE-----|-----BEGIN PUBLIC KEY-----|ssh-rsa AAAAB3NzaC1yc2E|Message 100 200 300 400|окно 1920x1080, 8 800 строк
стр. 495-123|тариф 8-800|№ 89161234567|заявка 79161234567|order 4155550100|2024-03-05-123|коды 100-200-300|шаг 0.0.1|v1.2.3.4|linux-6.1.0-18-amd64
python3.11-doc_3.11.2-6+deb12u9_all.deb|libc6 (>= 2.36)|0x7fff5fbff8c0|1,234,567,890|3.14159265358979|6.02214076e23|Тема: Re: 12345678|#89161234567
трек RA123456789RU|полис 1234567890123456|договор 77-12/2024-123456|вн. 1234|доб. 567|этаж 3, каб. 305|12.03.2024-15.03.2024|00:00:00.000000
DE12345678901234567890|GB00WEST12345698765432|AB12CD34EF56GH78|SHA256:abcdefghijklmnop|Content-Length: 1234567890|pid 1234567|uid=1000(user) gid=1000
Заказ № 4111111111111111|Order 4276000000000009|артикул 5469380000000001|Order no. 2200000000000053|sha256:4111111111111111|order_id: 4111111111111111
10.1.12.3 Настройка сети|## 10.4.2.1 Setup|Apache/2.4.57.1|libfoo 12.34.56.78|nginx/1.25.33.41 (Ubuntu)|позвоните 15 03 2024|факс 100 200 300 рублей
+100 000 000 рублей|прибыль +12 345 678 тыс.|звонков 100 200 300 штук|в 1941–1945 годах|код 112-233-44595|2010–2015–2020"""
REVIEWED = """\
Тел. ⟦phone:+49 (0)30 1234567⟧|⟦phone:+7.916.123.45.67⟧|звоните ⟦phone:(916) 123 45 67⟧|Passport ⟦passport:4508 123456⟧|passport no. ⟦passport:45 08 123456⟧
snils: ⟦snils:11223344595⟧|SNILS ⟦snils:112-233-445 95⟧|СНИЛС ⟦snils:112‑233‑445‑95⟧|СНИЛС ⟦snils:112-233-44595⟧|карта № ⟦payment_card:4111111111111111⟧
Order 7 paid by ⟦payment_card:4111111111111111⟧|заказ 5, карта ⟦payment_card:4111 1111 1111 1111⟧|card number ⟦payment_card:4111-1111-1111-1111⟧|libvirt ⟦ip_address:192.168.122.1⟧
⟦ip_address:10.1.12.3⟧ connected|web1/⟦ip_address:10.1.12.3⟧|тел. ⟦phone:8‑916‑123‑45‑67⟧|позвоните ⟦phone:15 03 20 24⟧|факс ⟦phone:100 200 300⟧ рабочий"""
"""What a reviewer found missed, and near neighbours of what he found wrongly replaced."""


def examples() -> list[str]:
    """Every example, marked."""
    rng = random.Random(20240305)
    made = []
    for rule, (value, sentences) in MARKED.items():
        for index in range(PER_RULE):
            made.append(sentences[index % len(sentences)].replace("{}", f"⟦{rule}:{value(rng)}⟧"))
    written = [item for line in (KEPT + "\n" + REVIEWED).split("\n") for item in line.split("|")]
    return made + written


def measure(marked: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Right, wrong and missed finds by rule in one example: what is left of the text shows which."""
    wanted = Counter(rule for rule, _ in MARK.findall(marked))
    placeholders = {rule.name: rule.placeholder for rule in RULES}
    expected = MARK.sub(lambda found: placeholders[found[1]], marked)
    got = redact_text(MARK.sub(lambda found: found[2], marked))
    if got == expected:
        return wanted, Counter(), Counter()
    found = Counter({name: got.count(placeholder) for name, placeholder in placeholders.items() if placeholder in got})
    return Counter(), found, wanted
