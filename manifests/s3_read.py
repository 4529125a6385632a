"""Reading one S3 object: a stream that survives broken connections, and a seekable view by ranges."""

import io
import random
import time
from typing import Any

from manifests.objects import StorageError
from manifests.s3_get import Body, BrokenBody, S3Get

# Tries in a row that bring not one byte; a try that brings some starts the count again.
_MAX_BARREN_TRIES = 8
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0


class ResumingReader(io.RawIOBase):
    """The bytes `start` .. `start + length` of an object, in order, each once, whatever happens to the connection.

    A body that breaks or ends early is asked for again from the byte reached, with the first answer's ETag: an object
    replaced meanwhile is a StorageError, never a mixture of two.

    length: 1 or more; all that follows where it is None.
    """

    def __init__(
        self,
        source: S3Get,
        url: str,
        bucket: str,
        key: str,
        *,
        start: int = 0,
        length: int | None = None,
        etag: str | None = None,
    ) -> None:
        super().__init__()
        self._source, self._url, self._bucket, self._key = source, url, bucket, key
        self._position = start
        self._end = None if length is None else start + length
        self._etag = etag
        self._body: Body | None = None
        self._num_barren_tries = 0
        self._open()  # a missing object is an error of opening, as with a file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Up to len(buffer) bytes; 0 only at the end asked for."""
        assert self._end is not None
        wanted = memoryview(buffer).cast("B")[: self._end - self._position]
        while len(wanted):
            try:
                body = self._body or self._open()
                num_read = body.readinto(wanted)
            except BrokenBody as fault:
                self._give_up_or_wait(str(fault))
                continue
            if num_read:
                self._position += num_read
                self._num_barren_tries = 0
                return num_read
            self._give_up_or_wait("the body ended early")
        return 0

    def read_rest(self) -> bytes:
        """Everything up to the end in one piece."""
        assert self._end is not None
        data = bytearray(self._end - self._position)
        view, num_filled = memoryview(data), 0
        while num_filled < len(data):
            num_filled += self.readinto(view[num_filled:])
        view.release()
        return bytes(data)

    def close(self) -> None:
        if not self.closed and self._body is not None:
            self._body.close()
        super().close()

    def _open(self) -> Body:
        byte_range = None
        if self._position or self._end is not None:
            byte_range = f"bytes={self._position}-{'' if self._end is None else self._end - 1}"
        answer = self._source.get(self._url, self._bucket, self._key, byte_range, self._etag)
        if self._etag not in (None, answer.etag):  # a compatible store may not know IfMatch
            answer.body.close()
            raise StorageError(f"read {self._url}: the object was replaced while it was read")
        self._etag = answer.etag
        end = self._position + answer.num_bytes
        if self._end is not None and end != self._end:
            answer.body.close()
            raise StorageError(f"{self._url} ends at byte {end}, not at the {self._end} asked for: the object is cut")
        self._end = end
        self._body = answer.body
        return answer.body

    def _give_up_or_wait(self, reason: str) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
        self._num_barren_tries += 1
        if self._num_barren_tries == _MAX_BARREN_TRIES:
            raise StorageError(
                f"{self._url}: no byte after {self._position} of {self._end} in {_MAX_BARREN_TRIES} tries: {reason}"
            )
        # Jitter, so that 64 ranks thrown off together do not come back together.
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**self._num_barren_tries)
        time.sleep(random.uniform(longest / 2, longest))


class RangedReader(io.RawIOBase):
    """A seekable object of `num_bytes`; each read is one range request, of the version that has this `etag`."""

    def __init__(self, source: S3Get, url: str, bucket: str, key: str, *, etag: str, num_bytes: int) -> None:
        super().__init__()
        self._object = (source, url, bucket, key)
        self._etag, self._num_bytes = etag, num_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._num_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), max(0, self._num_bytes - self._position))
        if length:
            with ResumingReader(*self._object, start=self._position, length=length, etag=self._etag) as reader:
                view[:length] = reader.read_rest()
        self._position += length
        return length
