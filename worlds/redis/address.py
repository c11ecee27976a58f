"""The store URL: what is the driver's, what is ours, and what may be shown."""

import re
import ssl
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from journal.core.errors import WorldUnknown
from journal.worlds.opening import redact_url
from journal.worlds.url_parameters import check_parameters

PARTITIONS = 64
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OURS = ("prefix", "partitions", "wait")
_TLS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
)
_REQUIRES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, who we are there, and how the store lies in it."""

    shown: str
    """The URL as it may be printed."""
    driver_url: str
    """What redis-py understands: without our parameters."""
    nodes: tuple[tuple[str, int], ...]
    """Hosts and ports; of a cluster, some of its nodes."""
    host: str
    port: int
    database: int
    username: str | None
    password: str | None
    is_cluster: bool
    is_tls: bool
    tls: dict[str, str]
    prefix: str
    partitions: int
    wait: int
    """Replicas that must have a batch before it is answered."""

    def tls_context(self) -> ssl.SSLContext | None:
        """How to speak TLS, as the `ssl_*` parameters say."""
        if not self.is_tls:
            return None
        context = ssl.create_default_context(
            cafile=self.tls.get("ssl_ca_certs"), capath=self.tls.get("ssl_ca_path")
        )
        requires = _REQUIRES.get(self.tls.get("ssl_cert_reqs", "required"), ssl.CERT_REQUIRED)
        has_names = self.tls.get("ssl_check_hostname", "true").lower() not in ("false", "no", "0")
        context.check_hostname = has_names and requires is ssl.CERT_REQUIRED
        context.verify_mode = requires
        if certificate := self.tls.get("ssl_certfile"):
            context.load_cert_chain(certificate, self.tls.get("ssl_keyfile"))
        return context


def parse_address(url: str) -> Address:
    """The parts of `url`. Raises `WorldUnknown` for one that makes no sense."""
    shown = redact_url(url)
    try:
        parts = urlsplit(url)
        user, nodes = _places(parts.netloc)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        check_parameters(dict(pairs), (*_OURS, "db", *_TLS), world=shown)
        given = {name: value for name, value in pairs if name in _OURS}
        rest = [(name, value) for name, value in pairs if name not in _OURS]
        path = parts.path.strip("/")
        database = int(dict(rest).get("db", path or 0))
        partitions, wait = int(given.get("partitions", PARTITIONS)), int(given.get("wait", 0))
    except ValueError as error:
        raise WorldUnknown(
            f"it cannot be understood ({error}): write redis://host:port/number", world=shown
        ) from None
    prefix = given.get("prefix", "journal")
    is_cluster = parts.scheme.endswith("+cluster")
    if not all(host for host, _ in nodes):
        raise WorldUnknown("it names no host: write redis://host:6379/0", world=shown)
    if len(nodes) > 1 and not is_cluster:
        raise WorldUnknown("it names several hosts: write redis+cluster:// for a cluster", world=shown)
    if database and is_cluster:
        raise WorldUnknown("a cluster has database 0 only", world=shown)
    if not _PREFIX.fullmatch(prefix):
        raise WorldUnknown(f"prefix {prefix!r} is not 1 to 64 of letters, digits and ._-", world=shown)
    if not 1 <= partitions <= 4096 or wait < 0:
        raise WorldUnknown("partitions are 1 to 4096, and wait counts replicas", world=shown)
    scheme = "rediss" if parts.scheme.startswith("rediss") else "redis"
    host, port = nodes[0]
    username, has_password, password = user.partition(":")
    at = f"{user}@" if user else ""
    netloc = at + parts.netloc.removeprefix(at).partition(",")[0]
    return Address(
        shown=shown,
        driver_url=urlunsplit((scheme, netloc, parts.path, urlencode(rest), "")),
        nodes=nodes,
        host=host,
        port=port,
        database=database,
        username=unquote(username) or None,
        password=unquote(password) if has_password and password else None,
        is_cluster=is_cluster,
        is_tls=scheme == "rediss",
        tls={name: value for name, value in rest if name.startswith("ssl_")},
        prefix=prefix,
        partitions=partitions,
        wait=wait,
    )


def _places(netloc: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """User and password, and the hosts. Raises ValueError for a port that is none."""
    user, _, places = netloc.rpartition("@")
    found = []
    for place in places.split(","):
        parts = urlsplit(f"//{place}")
        found.append((parts.hostname or "", parts.port or 6379))
    return user, tuple(found)
