"""Writing one S3 object, whole or not at all: one PUT where it is small, a multipart upload where it is not."""

import io
from typing import TYPE_CHECKING, Any

from manifests.objects import StorageError
from manifests.s3_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

_SMALLEST_PART_BYTES = 16 << 20
# S3 takes 10,000 parts. Parts of 16 MiB alone would end at 168 GB; growing by 16 MiB every 100 parts they reach
# 8.5 TB, and S3's own limit of 5 TB at 1.2 GiB a part. A shard of 256 MB has equal parts, as some stores insist.
_PARTS_OF_ONE_SIZE = 100


def part_num_bytes(index: int) -> int:
    """The size of part `index`, counted from 0, unless it is the last.

    >>> part_num_bytes(0) >> 20, part_num_bytes(99) >> 20, part_num_bytes(100) >> 20
    (16, 16, 32)
    """
    return _SMALLEST_PART_BYTES * (1 + index // _PARTS_OF_ONE_SIZE)


class Upload(io.RawIOBase):
    """A writer that holds one part in memory. Nothing is visible before `finish`, nothing is left after `abort`."""

    def __init__(self, client: "S3Client", url: str, bucket: str, key: str) -> None:
        super().__init__()
        self._client, self._url, self._bucket, self._key = client, url, bucket, key
        self._buffer = bytearray()
        self._num_bytes = 0
        self._upload_id: str | None = None
        self._parts: list[CompletedPartTypeDef] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._num_bytes

    def write(self, data: Any) -> int:
        """Takes all of `data`, a bytes-like object."""
        if self.closed:
            raise ValueError("write to a closed upload")
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            taken = view[start : start + part_num_bytes(len(self._parts)) - len(self._buffer)]
            self._buffer += taken
            start += len(taken)
            if len(self._buffer) == part_num_bytes(len(self._parts)):
                self._put_part()
        self._num_bytes += len(view)
        return len(view)

    def finish(self) -> None:
        """Makes the object visible under its name."""
        if self.closed:
            raise ValueError(f"{self._url}: the writer was closed inside its `with`: leave closing to it")
        if self._upload_id is None:
            with translated(self._url, "write"):
                self._client.put_object(Bucket=self._bucket, Key=self._key, Body=bytes(self._buffer))
        else:
            if self._buffer:
                self._put_part()
            self._complete(self._upload_id)
        self.close()

    def abort(self, error: BaseException) -> None:
        """Gives up what was uploaded. Where even that fails, `error`, about to be raised, gets a note of it."""
        upload_id, self._upload_id = self._upload_id, None
        self.close()
        if upload_id is None:
            return
        try:
            with translated(self._url, "abort"):
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=upload_id)
        except (OSError, ValueError) as second:
            error.add_note(f"and its upload {upload_id} could not be aborted: {second}")

    def _put_part(self) -> None:
        bucket, key, number = self._bucket, self._key, len(self._parts) + 1
        with translated(self._url, "write"):
            if self._upload_id is None:
                self._upload_id = self._client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
            answer = self._client.upload_part(
                Bucket=bucket, Key=key, UploadId=self._upload_id, PartNumber=number, Body=bytes(self._buffer)
            )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._buffer.clear()

    def _complete(self, upload_id: str) -> None:
        bucket, key = self._bucket, self._key
        with translated(self._url, "write"):
            self._client.complete_multipart_upload(
                Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": self._parts}
            )
            self._upload_id = None  # complete: from here on there is nothing to abort
            stored = self._client.head_object(Bucket=bucket, Key=key)["ContentLength"]
        if stored != self._num_bytes:
            raise StorageError(f"{self._url}: {self._num_bytes} bytes were written, the store holds {stored}: retry")
