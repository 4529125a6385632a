# ruff: noqa: E501 - sentences, one a line
"""A second labelled set for redaction, written from documented formats before its author had read the rules.

The first set (redaction_examples.py) grew beside the rules, so it flatters them. This one is looked at for its figures
only: rules may be mended after it, and then the table says so. Check digits are computed here, from the public
definitions, by code that shares nothing with the rules. Marks as there: ⟦rule:value⟧.
"""

import random
import re
from collections.abc import Callable


def _digits(rng: random.Random, count: int) -> str:
    return "".join(str(rng.randrange(10)) for _ in range(count))


def _inn10(rng: random.Random) -> str:
    # Order MNS RF BG-3-09/178 of 3 March 2004: weights 2 4 10 3 5 9 4 6 8, modulo 11, modulo 10.
    body = "77" + _digits(rng, 7)
    check = sum(w * int(d) for w, d in zip((2, 4, 10, 3, 5, 9, 4, 6, 8), body, strict=True)) % 11 % 10
    return body + str(check)


def _inn12(rng: random.Random) -> str:
    body = "50" + _digits(rng, 8)
    for weights in ((7, 2, 4, 10, 3, 5, 9, 4, 6, 8), (3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)):
        body += str(sum(w * int(d) for w, d in zip(weights, body, strict=True)) % 11 % 10)
    return body


def _snils(rng: random.Random) -> str:
    body = "0" + _digits(rng, 8) if rng.random() < 0.3 else "17" + _digits(rng, 7)
    total = sum(int(d) * (9 - place) for place, d in enumerate(body))
    check = total if total < 100 else 0 if total in (100, 101) else total % 101 % 100
    return f"{body[:3]}-{body[3:6]}-{body[6:]} {check:02d}"


def _card(prefix: str, length: int) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        body = prefix + _digits(rng, length - len(prefix) - 1)
        doubled = [int(d) * (2 - place % 2) for place, d in enumerate(reversed(body))]
        return body + str(-sum(n - 9 * (n > 9) for n in doubled) % 10)

    return make


def _iban(country: str, bban: str) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        account = re.sub("n", lambda _: str(rng.randrange(10)), bban)
        number = int("".join(str(int(character, 36)) for character in account + country + "00"))
        return f"{country}{98 - number % 97:02d}{account}"

    return make


def _spaced(make: Callable[[random.Random], str], mark: str = " ") -> Callable[[random.Random], str]:
    return lambda rng: mark.join(re.findall(".{1,4}", make(rng)))


VALUES: dict[str, Callable[[random.Random], str]] = {
    "inn10": _inn10,
    "inn12": _inn12,
    "snils": _snils,
    "visa": _card("4", 16),
    "mir": _card("2200", 16),
    "master": _card("55", 16),
    "amex": _card("37", 15),
    "visa4": _spaced(_card("4", 16)),
    "mir-": _spaced(_card("2202", 16), "-"),
    "de": _iban("DE", "n" * 18),
    "de4": _spaced(_iban("DE", "n" * 18)),
    "gb": _iban("GB", "NWBK" + "n" * 14),
    "kz": _iban("KZ", "125KZT" + "n" * 10),
    "fr4": _spaced(_iban("FR", "n" * 10 + "A" + "n" * 10 + "06")),
}

TEXT = """\
Пишите мне на ⟦email:ivan.petrov@yandex.ru⟧, отвечу завтра.
Контакт: ⟦email:i_petrov+tickets@corp.example.com⟧
Mail ⟦email:o'neil@example.ie⟧ about the invoice.
Кому: "Анна К." <⟦email:anna-k@mail.ru⟧>; Копия: <⟦email:buh@zavod-7.рф⟧>
forwarded by ⟦email:JOHN.DOE@EXAMPLE.CO.UK⟧.
mailto:⟦email:support-team@sub.domain.example.org⟧?subject=Help
The address ⟦email:x@y.io⟧ bounced.
Логин (⟦email:a.smirnova1987@gmail.com⟧) не принимается
bounce: ⟦email:1234567@users.noreply.github.com⟧ rejected
Ask ⟦email:jürgen@example.de⟧ or ⟦email:info@müller.example⟧.
Мой номер ⟦phone:+7 916 123-45-67⟧, звоните после шести.
Тел.: ⟦phone:8 (495) 123-45-67⟧, доб. 12
тел ⟦phone:89161234567⟧
Позвоните по телефону ⟦phone:+79031234567⟧ Ольге.
моб. ⟦phone:8-926-765-43-21⟧
Phone: ⟦phone:+1 (415) 555-0132⟧
Call us at ⟦phone:+44 20 7946 0958⟧ today.
Tel. ⟦phone:+49 30 901820⟧
factory hotline ⟦phone:+86 10 6552 9988⟧
WhatsApp ⟦phone:+380 44 123 45 67⟧
контакты: ⟦phone:(812) 333-22-11⟧
тел./факс: ⟦phone:(4712) 55-66-77⟧
my cell is ⟦phone:415-555-0199⟧, leave a message
Fax: ⟦phone:(212) 555-0147⟧
Звонить: ⟦phone:8 800 555 35 35⟧ (бесплатно)
Беларусь: ⟦phone:+375 29 123-45-67⟧
Сервер ⟦ip_address:203.0.113.45⟧ не отвечает на ping.
ssh admin@⟦ip_address:198.51.100.7⟧ port 22
inet addr:⟦ip_address:93.184.216.34⟧ Bcast:⟦ip_address:93.184.216.255⟧
Connection from ⟦ip_address:8.8.4.4⟧:53 refused
http://⟦ip_address:87.250.250.242⟧/index.html opens slowly
nameserver ⟦ip_address:2001:4860:4860::8888⟧
Адрес IPv6: ⟦ip_address:2a02:6b8::feed:0ff⟧ настроен
ping6 ⟦ip_address:fe80::1ff:fe23:4567:890a⟧%eth0
[⟦ip_address:2001:db8:85a3::8a2e:370:7334⟧]:443 closed the connection
Failed password for root from ⟦ip_address:61.177.172.104⟧ port 41022 ssh2
Банк заблокировал карту ⟦payment_card:{visa4}⟧, помогите.
Оплата картой ⟦payment_card:{mir}⟧ не прошла
card number: ⟦payment_card:{master}⟧ exp 09/27
Amex ⟦payment_card:{amex}⟧ was declined
Карта МИР ⟦payment_card:{mir-}⟧
charged twice on ⟦payment_card:{visa}⟧
PAN=⟦payment_card:{visa}⟧;CVV=123
возврат на ⟦payment_card:{visa4}⟧ до пятницы
Please transfer to ⟦iban:{de4}⟧.
IBAN: ⟦iban:{de}⟧ BIC: COBADEFFXXX
счёт ⟦iban:{kz}⟧ в Казахстане
Bank account ⟦iban:{gb}⟧ (NatWest)
RIB ⟦iban:{fr4}⟧
beneficiary's IBAN ⟦iban:{gb}⟧, sorry for the delay
ИНН ⟦inn:{inn10}⟧, КПП 770101001
ИНН/КПП: ⟦inn:{inn10}⟧/770401001
ИНН физлица: ⟦inn:{inn12}⟧.
Укажите ИНН (⟦inn:{inn12}⟧) в заявлении
ООО «Ромашка» (ИНН ⟦inn:{inn10}⟧, ОГРН 1027700132195)
инн: ⟦inn:{inn12}⟧
INN ⟦inn:{inn10}⟧
СНИЛС ⟦snils:{snils}⟧
Мой СНИЛС: ⟦snils:{snils}⟧, прошу проверить стаж.
страховой номер ⟦snils:{snils}⟧ указан неверно
снилс=⟦snils:{snils}⟧;
Сотрудник предъявил СНИЛС № ⟦snils:{snils}⟧
паспорт ⟦passport:4509 123456⟧ выдан ОВД «Хамовники»
Паспорт: серия ⟦passport:45 09 № 123456⟧
паспорт РФ ⟦passport:4010 654321⟧, выдан 12.03.2010
серия ⟦passport:46 12 номер 345678⟧
Паспортные данные: ⟦passport:5203 987654⟧
паспорт серии ⟦passport:7512 №456789⟧
AWS_ACCESS_KEY_ID=⟦api_key:AKIAIOSFODNN7EXAMPLE⟧
token ⟦api_key:ghp_16C7e42F292c6912E7710c838347Ae178B4a⟧ leaked
curl -H "PRIVATE-TOKEN: ⟦api_key:glpat-9f8a7b6c5d4e3f2a1b0c⟧" https://gitlab.example.com
export SLACK=⟦api_key:xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx⟧
key: ⟦api_key:AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q⟧
sk: ⟦api_key:sk_live_4eC39HqLyjWDarjtT1zdp7dc⟧
npm config: ⟦api_key:npm_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8⟧
HF_TOKEN=⟦api_key:hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh⟧
Authorization: Bearer ⟦api_key:eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U⟧
bot token ⟦api_key:110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1⟧
OPENAI_API_KEY="⟦api_key:sk-proj-abcdEFGH1234ijklMNOP5678qrstUVWX9012yzABcdEF⟧"
pypi ⟦api_key:pypi-AgEIcHlwaS5vcmcCJDA0ZjM2YjA1LTQ1YWMtNDM2Ny1iYzE5LTIyYzM0NTY3ODkwMQACKlszLCJhYmNk⟧
git clone https://deploy:⟦url_password:S3cr3t!pass⟧@git.example.com/repo.git
DATABASE_URL=postgres://app:⟦url_password:hunter2⟧@db.internal:5432/prod
ftp://anna:⟦url_password:qwerty123⟧@ftp.example.org/pub
redis://:⟦url_password:p4ssw0rd⟧@cache:6379/0
mongodb+srv://root:⟦url_password:XyZ%40123⟧@cluster0.abcd.mongodb.net
amqp://guest:⟦url_password:guest⟧@rabbit:5672/
http://user:⟦url_password:пароль1⟧@intranet.example/
Установлена версия 10.0.19045.3448, обновите до 10.0.22621.
Python 3.11.7, GCC 12.2.0, glibc 2.36
kernel 5.15.0-91-generic x86_64
Chrome/119.0.6045.199 Safari/537.36
Заказ № 4509123456 передан в доставку
Накладная 1234 567890 от 12.03.2024
Трек-номер RA123456789RU, посылка 80088812345678
order id 5500001234567890 shipped
Счёт 40702810900000012345 в ПАО Сбербанк, БИК 044525225
ОГРН 1027700132195, ОКПО 00032537, КПП 773601001
Артикул 8-926-765, цена 1 234 567 руб.
12.03.2024 10:15:30 ошибка 0x80070005
2024-03-05T10:15:30.123456Z INFO started in 00:00:12
1709633730 1709633730123 1709633730123456
commit 9fceb02d0ae598e95dc970b74767f19372d61af8
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
md5 d41d8cd98f00b204e9800998ecf8427e  empty.bin
uuid 550e8400-e29b-41d4-a716-446655440000
MAC 00:1A:2B:3C:4D:5E на порту 12
printf(3), open(2), ls(1), crontab(5) and systemd.unit(5)
См. раздел 4.2.1.3 руководства и рисунок 12-34-56.
std::vector<int>::iterator and ::before in CSS
time 12:34:56:78 timecode
a::b::c, dead::beef is not what it seems in C++ ns::cafe::face
RFC 2822, RFC 5322, ISO 8601:2004, ГОСТ 34.602-89
ISBN 978-5-699-12014-7, ISSN 1234-5678
ISBN-10: 0-306-40615-2
Координаты 55.751244, 37.618423
Размеры 1920x1080, 3840x2160; 16 777 216 цветов
Масса 1234567890 кг, остаток 12345678901 шт.
Серийный номер SN 4276550012345678
Дом 12, кв. 345, подъезд 6, код 1234*5678
Показания счётчика: 00123 456, 00123 789
user@host:~$ ls -la
root@server:/var/log# tail -f syslog
git@github.com:shardmill/shardmill.git
@Override public void run() {}
Подпишитесь на @channel_name в телеграме
foo@ bar, 5 @ 100 руб., a@b
printf("%s@%s", user, host)
pkg@1.2.3 npm install lodash@4.17.21
127.0.0.1 localhost и 0.0.0.0 для всех адресов
Bug 1388990, Bug 1389136 duplicates 1363485
#12345678901 закрыт, дубль #12345678902
page 123-456-7890-1 of the ledger
Тираж 100 000 экз. Формат 60х90/16. Заказ 8495.
0123456789 is the digits in order; 1234 5678 9012 3456 is a sample
4111 1111 1111 1112 fails the check
ИНН 7707083894 указан с ошибкой
СНИЛС 112-233-445 99 неверный
DE00 1234 5678 9012 3456 78 is not valid
https://example.com/path?id=79161234567890&t=1709633730
https://user@example.com/path and ssh://git@example.com:22/repo
http://example.com:8080/@scope/package
password: *** (hidden), login: admin
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 user comment
the sk- prefix and the AKIA prefix mark keys
ghp_short and xoxb-none are not tokens
Разрешение 300 dpi, ISO 6400, 1/8000 c
100.64 МБ из 255.255 МБ; 1.2.3 из 4.5.6
999.999.999.999 и 256.1.1.1 не адреса
SNMP OID 1.3.6.1.4.1.9.9.46.1.3
Глава 10.1.1.2 описывает сеть
Section 5.4.3.2 of the manual
Release 2.6.32.59 of the kernel
ТУ 2293-001-12345678-2005, ОКВЭД 62.01
Рейс SU 1234 08-12-2023 08:15–12:45
8 800 строк и 555 столбцов
в 2023-2024 гг. 8-10 заявок, 12-15 мая
+100500 к карме, +7 баллов, +1 (согласен)
Скидка 8-9-10 %, коды 812 и 495
Договор № 45-09/123456 от 01.02.2023
Полис ОСАГО ХХХ 0123456789
VIN XTA210990Y2765432
Тел. не указан, ИНН не указан, паспорт утерян
Поле «паспорт» обязательно, длина 10 цифр
ID 4010 в таблице 654321 строк
"""

PRIVATE_KEYS = [
    "Вот ключ:\n⟦private_key:-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq0\nq1w2e3r4t5y6\n-----END RSA PRIVATE KEY-----⟧\nспасибо",
    "⟦private_key:-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n-----END OPENSSH PRIVATE KEY-----⟧",
    "key: |\n  ⟦private_key:-----BEGIN PRIVATE KEY-----\n  MIGHAgEAMBMGByqGSM49AgEG\n  -----END PRIVATE KEY-----⟧\n",
    "⟦private_key:-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY\n-----END EC PRIVATE KEY-----⟧",
    "⟦private_key:-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF0x\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----⟧ sent by mistake",
]


def examples() -> list[str]:
    """Every example, marked."""
    rng = random.Random(7_112_026)
    lines = [re.sub(r"\{([a-z0-9-]+)\}", lambda found: VALUES[found[1]](rng), line) for line in TEXT.splitlines()]
    return lines + PRIVATE_KEYS
