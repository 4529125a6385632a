"""What storage says of an object, and what it raises when storage itself fails."""

from dataclasses import dataclass

from manifests.errors import UserError


@dataclass(frozen=True)
class ObjectInfo:
    """One stored object.

    `identity` changes when the object does, and costs no read: size, modification time and inode of a local file;
    ETag and size on S3. It says nothing of equal content in two places: that is a sha256's business.
    """

    url: str
    num_bytes: int
    identity: str


class StorageError(OSError):
    """Storage failed after retries: throttling, a broken connection, a short read, an object changed under the reader.

    Worth another try, unlike a UserError. A missing object is a FileNotFoundError. Neither holds credentials.
    """


class AccessError(UserError):
    """Storage refuses these credentials: wrong, without the right, or expired. `storage.reconnect` reads them anew."""
