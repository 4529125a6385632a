"""One GET of an S3 object or of a range of it: what comes back, and who asks.

    S3Get.get -> a plain GET (s3_plain.py), while that brings what was asked for -> from then on boto3

boto3 knows everything: chains of credentials, redirects, retries with backoff. But importing it and making its client
takes 0.2 s, which is more than all else of a first batch. So where the environment alone says how to ask, it is asked
only once something has gone wrong, and then for good: retries and errors are its own on both ways.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from manifests.s3_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


# Of both ways to ask.
CONNECT_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 32


class BrokenBody(Exception):
    """A body that ended in a fault on its way; the message is the fault's name. What is missing can be asked for."""


class Body(Protocol):
    """The bytes of an answer, once, in order."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Up to len(buffer) bytes; 0 where the connection has ended. Raises BrokenBody."""

    def close(self) -> None:
        """Gives the connection back."""


class Answer(NamedTuple):
    """An object, or the range of it that was asked for. num_bytes: of this body, as announced."""

    etag: str
    num_bytes: int
    body: Body


class GetObject(Protocol):
    """A way to ask that gives None for whatever is not the answer asked for."""

    def get(self, bucket: str, key: str, headers: dict[str, str]) -> Answer | None:
        """headers: `range` and `if-match`, where wanted."""


class S3Get:
    """The GETs of one process in one environment. Used by several threads.

    plain: the way without boto3, where there is one. client: boto3's.
    """

    def __init__(self, plain: GetObject | None, client: Callable[[], "S3Client"]) -> None:
        self._plain = plain
        self._client = client

    def get(self, url: str, bucket: str, key: str, byte_range: str | None, etag: str | None) -> Answer:
        """byte_range: as `bytes=0-9`. etag: of the version that alone is wanted.

        Raises FileNotFoundError, UserError or StorageError, naming `url`.
        """
        plain = self._plain  # once: another thread may give it up meanwhile
        if plain is not None:
            headers = {"range": byte_range, "if-match": etag}
            answer = plain.get(bucket, key, {name: text for name, text in headers.items() if text is not None})
            if answer is not None:
                return answer
            self._plain = None
        request: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if byte_range is not None:
            request["Range"] = byte_range
        if etag is not None:
            request["IfMatch"] = etag
        client = self._client()
        with translated(url, "read"):
            found = client.get_object(**request)
        return Answer(found["ETag"], found["ContentLength"], _BotoBody(found["Body"]))


class _BotoBody:
    """A StreamingBody, whose faults are of two libraries."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def readinto(self, buffer: memoryview, /) -> int:
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        try:
            return int(self._body.readinto(buffer))
        except (BotoCoreError, HTTPError, ConnectionError, TimeoutError) as error:
            raise BrokenBody(type(error).__name__) from None

    def close(self) -> None:
        self._body.close()
