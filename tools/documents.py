"""`define_doc`: a document, typed JSON that lives in a run's log.

A tool reads and edits it through `io.docs`, a handler through `turn.docs`, the application through `journal.docs`. An
edit is a function from the value to the next one: pure, since it may be applied again on a newer value.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from journal.core import values
from journal.core.errors import DocumentNotRead, InvalidOptions, InvalidValue
from journal.core.ids import check_id
from journal.core.typed import PLAIN, ValueCodec, codec_of

T = TypeVar("T")
Migrate = Callable[[Any, int], Any]
"""(JSON value, the version it was written in) to the JSON value of today."""


class Document(Generic[T]):
    """What a document is: its kind, its type, and how older values become today's. Made by `define_doc`."""

    def __init__(self, kind: str, version: int, type: type[T], initial: T, migrate: Migrate | None) -> None:  # noqa: A002 - the field's name
        self.kind = check_id(kind, "kind of document")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidOptions(f"document {kind!r}: versions count from 1, not from {version!r}")
        self.version = version
        self.type = type
        self.migrate = migrate
        self._what = f"document {kind!r}"
        self._codec: ValueCodec[T] = codec_of(type, what=self._what)
        self._initial = self.encode(initial)

    def __repr__(self) -> str:
        return f"<Document {self.kind!r} version {self.version}>"

    def encode(self, value: object) -> bytes:
        """The canonical bytes of `value`. Raises `InvalidValue` if it is not of the document's type."""
        data = self._codec.encode(value, what=self._what)
        self._decode(data, self._what)
        return data

    def initial(self) -> T:
        """The value of a document that nobody has written: a new one each time."""
        return self._decode(self._initial, self._what)

    def read(self, data: bytes, version: int) -> T:
        """A stored value in today's type. Raises `DocumentNotRead`."""
        if version > self.version:
            raise DocumentNotRead(
                kind=self.kind,
                reason=f"it was written in version {version}, and this code knows {self.version}: deploy newer code",
            )
        if version < self.version:
            data = self._migrated(data, version)
        try:
            return self._decode(data, self._what)
        except InvalidValue as error:
            raise DocumentNotRead(kind=self.kind, reason=f"version {version}: {error}") from error

    def _migrated(self, data: bytes, version: int) -> bytes:
        if self.migrate is None:
            raise DocumentNotRead(
                kind=self.kind,
                reason=f"it was written in version {version}: give define_doc a migrate=(value, from_version)",
            )
        try:
            return values.encode(self.migrate(values.decode(data), version), what=self._what)
        except Exception as error:
            raise DocumentNotRead(
                kind=self.kind,
                reason=f"migrate() of version {version} raised {type(error).__name__}; mend it, the log is as it was",
            ) from error

    def _decode(self, data: bytes, what: str) -> T:
        if self._codec is not PLAIN:
            return self._codec.decode(data)
        try:
            value: T = msgspec.json.decode(data, type=self.type)
        except msgspec.ValidationError as error:
            raise InvalidValue(what=what, path="", reason=str(error)) from None
        return value


def check_document(doc: object, what: str) -> None:
    """Raise `InvalidOptions`, which begins with `what`, if `doc` is no document."""
    if not isinstance(doc, Document):
        raise InvalidOptions(f"{what}: {doc!r} is no document: give what define_doc made")


def define_doc(
    kind: str,
    version: int = 1,
    type: type[T] = dict,  # type: ignore[assignment]  # noqa: A002 - the field's name
    initial: T | Callable[[], T] | None = None,
    *,
    migrate: Migrate | None = None,
) -> Document[T]:
    """A document of that kind: one a run, read and edited by every agent that lists it (``docs=[...]``).

    `type` is what msgspec reads (JSON, structs, dataclasses) or a pydantic model; raise `version` when it changes, and
    let `migrate(value, from_version)` make today's JSON of older ones. `initial`: the value, or what makes it; None:
    `type()`. Raises `InvalidOptions`, `UnknownType` and `InvalidValue`.
    """
    made: Any = _first(kind, type) if initial is None else initial() if callable(initial) else initial
    return Document(kind, version, type, made, migrate)


def _first(kind: str, type: Any) -> Any:  # noqa: A002 - the field's name
    """What `type()` makes."""
    if not callable(type):
        raise InvalidOptions(f"document {kind!r}: type={type!r} is no type")
    try:
        return type()
    except Exception as error:
        raise InvalidOptions(
            f"document {kind!r}: {getattr(type, '__name__', type)}() makes no first value ({error}): "
            "say initial=, the value or what makes it"
        ) from error
