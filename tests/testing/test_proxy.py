"""The proxy breaks a connection in the ways that a network does."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from journal.testing.proxy import Proxy


class Echo(socketserver.BaseRequestHandler):
    """Sends back what comes."""

    def handle(self) -> None:
        try:
            while data := self.request.recv(4096):
                self.request.sendall(data)
        except ConnectionResetError:
            pass  # that is what the tests are about


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with Proxy(server.server_address[1]) as proxy:
                yield proxy
        finally:
            server.shutdown()
            thread.join()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def ask(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(100)


def test_it_passes_on_what_it_gets(proxy: Proxy) -> None:
    with connect(proxy) as one, connect(proxy) as two:
        assert ask(one, b"one") == b"one"
        assert ask(two, b"two") == b"two"
        assert proxy.connections == 2


def test_a_cut_resets_what_is_open_and_serves_what_comes(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        assert ask(connection, b"a") == b"a"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with connect(proxy) as connection:
        assert ask(connection, b"b") == b"b"


def test_what_is_refused_gets_no_answer(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError), connect(proxy) as connection:
        connection.recv(1)  # it, or the connecting: which hears of it is chance
    proxy.refuse(False)
    with connect(proxy) as connection:
        assert ask(connection, b"a") == b"a"


def test_what_is_delayed_comes_late(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.delay(0.2)
        begun = time.monotonic()
        assert ask(connection, b"a") == b"a"
        assert time.monotonic() - begun >= 0.4, "both ways"
        proxy.heal()
        assert ask(connection, b"b") == b"b"


def test_an_answer_can_be_dropped_alone(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.drop(up=False, down=True)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ask(connection, b"lost")
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_it_cuts_after_so_many_bytes(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.cut_after(down=5)
        assert ask(connection, b"abc") == b"abc"
        assert ask(connection, b"defg") == b"de"
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with connect(proxy) as connection:
        assert ask(connection, b"once") == b"once"


def connect_and_ask(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection, b"nobody there")


def test_it_leads_to_another_target(proxy: Proxy) -> None:
    target = proxy._target
    proxy.lead_to(1)
    with pytest.raises(ConnectionResetError):
        connect_and_ask(proxy)  # whichever of the two the reset meets
    proxy.lead_to(target)
    with connect(proxy) as connection:
        assert ask(connection, b"back") == b"back"
