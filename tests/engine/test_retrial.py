"""What a person says of calls along with a retry: on every store, and what is refused."""

import asyncio
from typing import Any

import pytest

from journal import DidNotHappen, Journal, NotRun, Ran, Turn, TurnBlocked, TurnFailed, io, never, step
from journal.core.codec import open_record
from journal.core.errors import CallNotFound, NotRetriable, RetryRefused, RunBusy
from journal.core.records import TurnRetried
from journal.replay.fold import fold
from journal.replay.state import RunState
from journal.replay.timeline import lines, rows

pytestmark = pytest.mark.anyio


@pytest.fixture
def memory(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"memory:{tmp_path_factory.mktemp('retrial').name}"


async def state_of(journal: Journal, run: str = "r") -> RunState:
    return fold(await journal.read(run))


async def go_on(journal: Journal, **said: Any) -> Any:
    handle = await journal.retry("r", **said)
    return await handle.settle(10, serve=True)


class Shop:
    """An agent that looks something up, pays and ships; what it did is counted, and it does as it is told."""

    def __init__(self, url: str) -> None:
        self.did: list[str] = []
        self.keys: list[str] = []
        self.pay: Any = "paid"
        self.ship: Any = "shipped"
        self.price = 5
        self.journal = Journal(url)
        self.agent = self.journal.agent(self._work, name="shop")

    async def _work(self, turn: Turn, item: str) -> list[Any]:
        def look(item: str) -> int:
            return self.price

        @never
        def pay(amount: int) -> Any:
            self.did.append(f"pay {amount}")
            self.keys.append(io.idempotency_key)
            return self._do(self.pay)

        def ship(item: str) -> Any:
            self.did.append("ship")
            return self._do(self.ship)

        price = await turn.step(look, item)
        paid = (await turn.tool(pay, price)).value
        return [price, paid, await turn.step(ship, item)]

    def _do(self, what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return what

    async def fail(self) -> str:
        with pytest.raises(TurnFailed) as failed:
            await self.agent.run("book", run_id="r")
        return str(failed.value)


# Settling ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{"id": 7}, None, "x" * 200_000], ids=["small", "null", "blob"])
async def test_an_unknown_call_gives_what_is_told_by_hand(url: str, value: Any) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        shop.pay = TimeoutError()
        assert " r --settle N=JSON, or N=did-not-run, goes on" in await shop.fail()
        assert await go_on(journal, settle={2: value}) == [5, value, "shipped"]
        assert shop.did == ["pay 5", "ship"]
        state = await state_of(journal)
    call = state.calls[1]
    assert call.outcome is not None
    (said,) = state.turns[0].interventions
    assert (call.outcome.status, call.outcome.by_hand) == ("ok", said.seq)
    assert (said.settled, said.did_not_run, said.from_call) == ([2], [], None)
    drawn = "\n".join(lines(rows(state)))
    assert f"told by hand in record {said.seq}" in drawn
    assert f"record {said.seq} tells by hand what call 2 gave" in drawn


async def test_an_unknown_call_that_did_not_run_is_made_under_the_same_key(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        shop.pay = TimeoutError()
        await shop.fail()
        shop.pay = "paid"
        assert await go_on(journal, settle={2: NotRun()}) == [5, "paid", "shipped"]
        assert shop.did == ["pay 5", "pay 5", "ship"]
        assert shop.keys[0] == shop.keys[1]
        state = await state_of(journal)
    assert state.calls[1].superseded_by == state.turns[0].interventions[0].seq
    assert state.turns[0].interventions[0].did_not_run == [2]
    assert "says that call 2 did not run" in "\n".join(lines(rows(state)))


async def test_what_was_told_by_hand_may_be_told_again(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.pay = TimeoutError()
        await shop.fail()
        shop.ship = ValueError("no")
        with pytest.raises(TurnFailed):
            await go_on(journal, settle={2: Ran("wrong")})
        shop.ship = "shipped"
        assert await go_on(journal, settle={2: "right"}) == [5, "right", "shipped"]
        assert shop.did == ["pay 5", "ship", "ship"]


async def test_a_known_outcome_is_not_settled(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        before = await journal.read("r")
        for result in ("other", NotRun()):
            with pytest.raises(RetryRefused, match=r"call 2 is known \(ok\).*--from 2") as refused:
                await journal.retry("r", settle={2: result})
            assert refused.value.calls == (2,)
        assert await journal.read("r") == before


# Setting aside -----------------------------------------------------------------------------------------


async def test_from_a_call_on_everything_is_made_again(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        shop.ship, shop.price = "shipped", 6
        assert await go_on(journal, from_call=1, settle={2: NotRun()}) == [6, "paid", "shipped"]
        assert shop.did == ["pay 5", "ship", "pay 6", "ship"]
        state = await state_of(journal)
    (said,) = state.turns[0].interventions
    assert (said.from_call, said.did_not_run) == (1, [2])
    assert [call.superseded_by for call in state.calls] == [said.seq] * 3 + [None] * 3
    assert "sets call 1 and all after it aside" in "\n".join(lines(rows(state)))


async def test_a_started_never_call_is_not_set_aside_by_the_way(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        before = await journal.read("r")
        with pytest.raises(RetryRefused, match=r"2 \(pay#1\) is `never`.*--settle 2=did-not-run") as refused:
            await journal.retry("r", from_call=1)
        assert refused.value.calls == (2,)
        with pytest.raises(RetryRefused, match="set aside by --from"):
            await journal.retry("r", from_call=1, settle={2: "paid"})
        assert await journal.read("r") == before
        shop.ship = "shipped"
        assert await go_on(journal, from_call=3) == [5, "paid", "shipped"]
        assert shop.did == ["pay 5", "ship", "ship"]


async def test_a_never_call_that_says_it_did_not_happen_needs_no_word(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.pay = DidNotHappen("no money")
        await shop.fail()
        shop.pay = "paid"
        assert await go_on(journal, from_call=1) == [5, "paid", "shipped"]


async def test_a_sibling_that_was_cancelled_over_it_is_made_again(memory: str) -> None:
    journal, did, is_well = Journal(memory), [], False

    async def slow() -> str:
        did.append("slow")
        if not is_well:
            await asyncio.sleep(3600)
        return "slow"

    async def bad() -> str:
        did.append("bad")
        if not is_well:
            await asyncio.sleep(0.05)
            raise ValueError("no")
        return "good"

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(turn.step(fn)) for fn in (slow, bad)]
        return [task.result() for task in tasks]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        is_well = True
        assert await go_on(journal, from_call=2) == ["slow", "good"]
    assert did == ["slow", "bad", "slow", "bad"]


# Accepting ---------------------------------------------------------------------------------------------


async def blocked(journal: Journal, agent: Any) -> None:
    with pytest.raises(TurnBlocked, match="divergence"):
        await go_on(journal)


async def test_another_input_takes_the_recorded_outcome(url: str) -> None:
    journal, did, factor, fails = Journal(url), [], 1, True

    def look(item: str) -> str:
        did.append(item)
        return f"about {item}"

    def check() -> str:
        if fails:
            raise ValueError("no")
        return "checked"

    @journal.agent
    async def work(turn: Turn, item: str) -> list[str]:
        return [await turn.step(look, item * factor), await turn.step(check)]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run("a", run_id="r")
        factor, fails = 2, False
        await blocked(journal, work)
        assert await go_on(journal, accept_divergence=True) == ["about a", "checked"]
        assert did == ["a"]
        state = await state_of(journal)
        (said,) = state.turns[0].interventions
        assert (said.recorded, said.asked) == ("look#1", "look#1")
        assert "takes look#1 as it was recorded" in "\n".join(lines(rows(state)))


async def test_a_renamed_step_takes_the_recorded_outcome(memory: str) -> None:
    journal, did, name, fails = Journal(memory), [], "look", True

    def look(item: str) -> str:
        did.append(item)
        return f"about {item}"

    def check() -> str:
        if fails:
            raise ValueError("no")
        return "checked"

    @journal.agent
    async def work(turn: Turn, item: str) -> list[str]:
        renamed = step(look, name=name)
        found = [await turn.step(renamed, item), await turn.step(renamed, item + "b")]
        return [*found, await turn.step(check)]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run("a", run_id="r")
        name = "find"
        await blocked(journal, work)
        with pytest.raises(TurnBlocked, match=r"find#2.*look#2"):  # each is accepted by itself
            await go_on(journal, accept_divergence=True)
        fails = False
        assert await go_on(journal, accept_divergence=True) == ["about a", "about ab", "checked"]
        assert did == ["a", "ab"]
        state = await state_of(journal)
    assert [(s.recorded, s.asked) for s in state.turns[0].interventions] == [
        ("look#1", "find#1"), ("look#2", "find#2"),
    ]  # fmt: skip


async def test_a_call_that_is_no_longer_asked_for_may_go_unasked(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.05)
    shop = Shop(memory)
    journal, did, asks, fails = shop.journal, [], True, True

    def note() -> str:
        did.append("note")
        return "noted"

    def check() -> str:
        if fails:
            raise ValueError("no")
        return "checked"

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        if asks:
            await turn.step(note)
        return await turn.step(step(check).options(key="check"))

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        asks, fails = False, False
        await blocked(journal, work)
        assert await go_on(journal, accept_divergence=True) == "checked"
    assert did == ["note"]


async def test_nothing_diverges_so_nothing_is_accepted(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        with pytest.raises(RetryRefused, match="not blocked by a divergence"):
            await journal.retry("r", accept_divergence=True)


# Refusals ----------------------------------------------------------------------------------------------


async def test_there_is_no_such_call(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        for said in ({"from_call": 4}, {"settle": {4: 1}}, {"from_call": 0}):
            with pytest.raises(CallNotFound, match="it has 3"):
                await journal.retry("r", **said)


async def test_a_call_that_was_set_aside_is_not_named_again(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        with pytest.raises(TurnFailed):
            await go_on(journal)
        with pytest.raises(RetryRefused, match="call 3 was set aside before"):
            await journal.retry("r", from_call=3)
        shop.ship = "shipped"
        assert await go_on(journal, from_call=4) == [5, "paid", "shipped"]


async def test_calls_of_another_turn(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        await shop.agent.run("book", run_id="r")
        shop.pay = ValueError("no")
        with pytest.raises(TurnFailed):
            await shop.agent.run("book", run_id="r", key="second")
        with pytest.raises(RetryRefused, match="call 3 is of turn start"):
            await journal.retry("r", from_call=3)
        with pytest.raises(NotRetriable, match=r"journal fork( --world \S+)? r --at N"):
            await journal.retry("r", turn_id="start", from_call=3)


async def test_a_run_at_work_is_not_retried(memory: str) -> None:
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.ship = ValueError("no")
        await shop.fail()
        await shop.agent.submit("pen", run_id="r", key="second")
        with pytest.raises(RunBusy, match="wait until turn second has ended"):
            await journal.retry("r", turn_id="start", from_call=3)
        with pytest.raises(NotRetriable, match=r"journal cancel( --world \S+)? r"):
            await journal.retry("r", from_call=3)


async def test_two_that_say_different_things_at_once_do_not_both_count(memory: str) -> None:
    """The one retry is not taken for the other, which was decided at the same head."""
    shop = Shop(memory)
    async with shop.journal as journal:
        shop.pay = TimeoutError()
        await shop.fail()
        world = (await journal.runtime()).world
        append = world.append
        seen: list[Any] = []

        async def late(batch: Any) -> Any:
            if not seen:
                seen.append(batch)
                await journal.retry("r", settle={2: "mine"})
            return await append(batch)

        world.append = late  # type: ignore[method-assign] # the moment between deciding and writing
        with pytest.raises(NotRetriable, match="changing right now"):
            await journal.retry("r", settle={2: "other"})
        records = [open_record(record) for record in await journal.read("r")]
    (retried,) = [body for body in records if isinstance(body, TurnRetried)]
    assert list(retried.settled.values()) == [b'"mine"']
