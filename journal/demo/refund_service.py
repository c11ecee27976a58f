"""The outside world of the demo: a shop's service whose refunds are counted where no crash of ours can reach.

`GET /orders/{id}`, `POST /refunds` (`order_id`, `amount`), `POST /notes` (`order_id`, `text`), `GET /stats`. Refunds
add up, as real ones do: the service recognizes no repetition, so what runs twice is seen twice. A note is kept once
per order and text. `hang_on=n` holds the answer to the n-th refund after it took effect.
"""

import sys
from collections import defaultdict
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

import click

from journal.demo.loopback import BadRequest, LoopbackServer, Reply, Request, Tally

PRICE = 30
URL_VARIABLE = "JOURNAL_DEMO_SERVICE"
"""Where the tools of the demo find the service."""
T = TypeVar("T", str, int)


class RefundService(LoopbackServer):
    """The shop, listening while the context is open."""

    def __init__(self, *, tally: Tally | None = None, hang_on: int | None = None, port: int = 0) -> None:
        super().__init__(tally=tally, hang_on=hang_on, port=port)
        self._lock = Lock()
        self._refunded: defaultdict[str, int] = defaultdict(int)
        self._notes: defaultdict[str, list[str]] = defaultdict(list)

    @property
    def refunds(self) -> int:
        """How often money left."""
        return self.tally.count("refunds")

    def stats(self) -> dict[str, int]:
        """How often each tool had its effect."""
        return {name: self.tally.count(name) for name in ("orders_read", "refunds", "notes_posted")}

    def notes(self, order_id: str) -> list[str]:
        """The notes on an order."""
        with self._lock:
            return list(self._notes[order_id])

    def answer(self, request: Request) -> Reply:
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["stats"]:
                return Reply(self.stats())
            case "GET", ["orders", order_id]:
                return self._order(order_id)
            case "POST", ["refunds"]:
                return self._refund(_field(request, "order_id", str), _field(request, "amount", int))
            case "POST", ["notes"]:
                return self._note(_field(request, "order_id", str), _field(request, "text", str))
        return Reply({"error": f"no {request.method} {request.path} here"}, 404)

    def _order(self, order_id: str) -> Reply:
        self.tally.add("orders_read", order_id=order_id)
        with self._lock:
            refunded = self._refunded[order_id]
        return Reply({"order_id": order_id, "item": "vase", "amount": PRICE, "refunded": refunded})

    def _refund(self, order_id: str, amount: int) -> Reply:
        with self._lock:
            self._refunded[order_id] += amount
        number = self.tally.add("refunds", order_id=order_id, amount=amount)
        self.hold.arrive(number)  # the money has left; only the answer is missing
        return Reply({"order_id": order_id, "refunded": amount, "receipt": f"R-{number}"})

    def _note(self, order_id: str, text: str) -> Reply:
        self.tally.add("notes_posted", order_id=order_id)
        with self._lock:
            if text not in self._notes[order_id]:
                self._notes[order_id].append(text)
        return Reply({"order_id": order_id, "posted": True})


def _field(request: Request, name: str, kind: type[T]) -> T:
    value = request.body.get(name) if isinstance(request.body, dict) else None
    if not isinstance(value, kind):
        raise BadRequest(f"{name} is needed, as {kind.__name__}")
    return value


@click.command(help=__doc__)
@click.option("--port", default=0, show_default="a free one")
@click.option("--tally", type=click.Path(path_type=Path), help="File that keeps the counts.")
@click.option("--hang-on", type=int, help="Hold the answer to this refund, counted from 1.")
def main(port: int, tally: Path | None, hang_on: int | None) -> None:
    """Serve until interrupted; the URL is the one line on stdout."""
    with RefundService(tally=Tally(tally), hang_on=hang_on, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        Event().wait()


if __name__ == "__main__":
    main()
