"""IP addresses, version 4 and 6.

Replaces  four numbers up to 255 with dots; eight groups, or groups with ::, of an IPv6 address.
Keeps     loopback, 0.0.0.0, netmasks and broadcast (255...), which name nobody; versions: after a word such as
          version, after v, inside a longer dotted number, and four numbers below 32 that do not start with 10
          (2.4.1.0); a public address after a product and a slash (Apache/2.4.57.1) or after a library's name
          (libfoo 12.34.56.78); numbers 1 to 31 before a capitalised word on their line (headings: 10.1.1.2 Setup). All
          that unless a word such as IP, адрес or ping is before them or a port or mask behind.
Misses    addresses in other notations (decimal, in-addr.arpa).
"""

import ipaddress
import re

from pipeline.redaction.rule import COLONS, DOTTED, Rule, Span, before

_V4 = re.compile(rb"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d]|\.\d|[A-Za-z_])")
_V6 = re.compile(rb"[0-9A-Fa-f:]{2,39}(?![0-9A-Za-z_:])")
_VERSION = re.compile(
    r"(?:верси\w{1,3}|version|ver\.?|релиз\w{0,2}|release|build|сборк\w{1,2}|firmware|прошивк\w{1,3}|раздел\w{0,2}|section"
    r"|пункт\w{0,2}|глав\w{1,2}|chapter|appendix|приложени\w{1,2}|oid)[\s:=-]{0,3}$"
)
_ADDRESS = re.compile(
    r"(?:\bip\w{0,2}|адрес\w{0,3}|(?<!\[ip_)address|host|хост\w{0,2}|ping|сервер\w{0,2}|server|шлюз\w{0,2}|gateway|dns)\b.{0,12}$"
)
_PRODUCT = re.compile(
    r"(?:^|[\s(;,\"'])[a-z][a-z0-9_+.-]*/$|\blib[a-z0-9_+.-]+[\s=]{1,2}$"
    r"|(?:пакет\w{0,2}|package|плагин\w{0,2}|plugin|драйвер\w{0,2}|driver|модул\w{1,2}|module)\s[a-z0-9_+.-]+[\s=]{1,2}$"
)
_LINE_START = re.compile(r"(?:^|\n)[ \t#=*]*$")
_CAPITALISED = re.compile(r"\.?[ \t]+[A-ZА-ЯЁ][a-zа-яё]")
_BEHIND = re.compile(rb":\d{1,5}\b|/\d{1,2}\b")
LOW = 32


def _find(content: bytes, place: int) -> Span | None:
    if found := _V4.match(content, place, place + 18):
        return _v4(content, place, found)
    if found := _V6.match(content, place, place + 41):
        text = found[0].removesuffix(b":") if not found[0].endswith(b"::") else found[0]
        return (place, place + len(text)) if _is_v6(text) else None
    return None


def _v4(content: bytes, place: int, found: re.Match[bytes]) -> Span | None:
    octets = [int(group) for group in found.groups()]
    if max(octets) > 255 or any(len(group) > 1 and group.startswith(b"0") for group in found.groups()):
        return None
    if octets[0] in (0, 127, 255) or content[place - 1 : place] in (b".", b"-", b"_", b"+"):
        return None
    context = before(content, place)
    is_address = _ADDRESS.search(context) or _BEHIND.match(content, found.end())
    if not is_address and _VERSION.search(context):
        return None
    is_private = octets[0] == 10 or octets[:2] == [192, 168] or (octets[0] == 172 and 16 <= octets[1] < 32)
    if not is_address and not is_private and _PRODUCT.search(context):
        return None
    if not is_address and min(octets) > 0 and max(octets) < LOW and _LINE_START.search(context):
        line = content[found.end() : found.end() + 24].decode("utf-8", "ignore")
        if _CAPITALISED.match(line):
            return None
    if max(octets) < LOW and octets[0] != 10 and not is_address:
        return None
    return found.span()


def _is_v6(text: bytes) -> bool:
    groups = [group for group in text.split(b":") if group]
    if len(groups) < 2 or not any(byte in b"0123456789" for byte in text):
        return False
    known = len(groups[0]) == 4 and groups[0][:1].lower() in b"23f"
    if len(groups) < 4 and not known:
        return False
    try:
        return not ipaddress.IPv6Address(text.decode()).is_loopback
    except ValueError:
        return False


RULE = Rule(
    name="ip_address",
    placeholder="[IP_ADDRESS]",
    triggers=(DOTTED, COLONS),
    find=_find,
    examples=(
        ("вход с 203.0.113.77 и 10.0.0.5:8080", "вход с [IP_ADDRESS] и [IP_ADDRESS]:8080"),
        ("ping 8.8.8.8", "ping [IP_ADDRESS]"),
        ("2001:db8::1428:57ab и fe80::1", "[IP_ADDRESS] и [IP_ADDRESS]"),
        ("127.0.0.1, 0.0.0.0, 255.255.255.0", "127.0.0.1, 0.0.0.0, 255.255.255.0"),
        ("версия 2.4.1.0, Chrome 120.0.6099.109", "версия 2.4.1.0, Chrome 120.0.6099.109"),
        ("version 172.16.5.100", "version 172.16.5.100"),
        ("раздел 1.2.3.4 и OID 1.3.6.1.4.1.2021", "раздел 1.2.3.4 и OID 1.3.6.1.4.1.2021"),
        ("10.1.12.3 Настройка сети\n## 10.2.3.4. Setup", "10.1.12.3 Настройка сети\n## 10.2.3.4. Setup"),
        ("10.1.12.3 connected\n10.0.0.5 Error", "[IP_ADDRESS] connected\n[IP_ADDRESS] Error"),
        ("Apache/2.4.57.1, libfoo 12.34.56.78", "Apache/2.4.57.1, libfoo 12.34.56.78"),
        ("node1/10.1.2.3, libvirt 192.168.122.1", "node1/[IP_ADDRESS], libvirt [IP_ADDRESS]"),
        ("std::vector 10:15:00 aa:bb:cc:dd:ee:ff B::C", "std::vector 10:15:00 aa:bb:cc:dd:ee:ff B::C"),
    ),
)
