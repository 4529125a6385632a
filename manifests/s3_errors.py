"""boto3's errors in our words: what the user can mend, what is missing, what is worth another try. Never a credential.

The original is dropped, not chained: its text may hold the signed request or an endpoint with a password in it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from manifests.errors import UserError
from manifests.objects import AccessError, StorageError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_REFUSED = frozenset(
    {"403", "401", "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId"}
    | {"InvalidToken", "SignatureDoesNotMatch", "Unauthorized"}
)


@contextmanager
def translated(url: str, operation: str) -> Iterator[None]:
    """Turns botocore's errors into FileNotFoundError, UserError or StorageError naming `url` and `operation`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _of_response(error, url, operation) from None
    except BotoCoreError as error:
        raise _of_request(error, url, operation) from None


def _of_response(error: "ClientError", url: str, operation: str) -> Exception:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    what = f"{operation} {url}: {code or 'no code'} (HTTP {status})"
    if code in ("NoSuchBucket", "InvalidBucketName"):
        return UserError(f"{what}: there is no such bucket at {endpoint()}: create it, or mend the name")
    if code in _MISSING:
        return FileNotFoundError(2, "No such object", url)
    if code in _REFUSED:
        return AccessError(f"{what}: {endpoint()} refuses: check AWS_ACCESS_KEY_ID or the role, and what they may do")
    if code in ("PreconditionFailed", "412"):
        return StorageError(f"{what}: the object was replaced while it was read")
    return StorageError(f"{what}: gave up after retries")


def _of_request(error: Exception, url: str, operation: str) -> Exception:
    from botocore import exceptions

    what = f"{operation} {url}"
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return UserError(f"{what}: no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role")
    if isinstance(error, exceptions.ProfileNotFound | exceptions.CredentialRetrievalError):
        return UserError(f"{what}: {type(error).__name__}: mend AWS_PROFILE or the credentials it leads to")
    if isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectTimeoutError | exceptions.SSLError):
        return UserError(f"{what}: cannot reach {endpoint()}: mend AWS_ENDPOINT_URL, or start the server")
    if isinstance(error, exceptions.ParamValidationError | exceptions.InvalidRegionError):
        return UserError(f"{what}: {type(error).__name__}: mend the bucket's name or AWS_DEFAULT_REGION")
    return StorageError(f"{what}: {type(error).__name__}: gave up after retries")


def endpoint() -> str:
    """Where requests go, without the user name and password a URL may hold."""
    url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not url:
        return "AWS S3"
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the endpoint"
    return f"{parts.scheme}://{parts.hostname}{port}"
