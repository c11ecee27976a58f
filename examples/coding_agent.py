"""A coding agent that dies in the middle of an edit, and carries on: run it, kill it, run it again, and look back."""

import asyncio
import os

from agents import Agent, RunContextWrapper, function_tool

from journal import Journal, Turn, define_doc, io, safe
from journal.adapters.openai_agents import DurableRunner, file_tools
from journal.demo.clerk import Ask, Conversation, Say
from journal.demo.model_server import bundled_model

journal = Journal.local()  # all of it lies in ./.journal; its agents have files, in the log
Todo = define_doc("todo", type=dict[str, bool])  # whether it is done, by item
TASKS = {"build": "Build a page about otters.", "colour": "Now give it a heading in green"}


@safe
@function_tool
async def set_todo(item: str, is_done: bool) -> str:
    """Put an item on the to-do list, or say that it is done."""
    return str(io.docs.update(Todo, lambda todo: {**todo, item: is_done}))


@safe
@function_tool
async def restyle(context: RunContextWrapper[Turn], colour: str) -> str:
    """Give the heading another colour."""
    page = await io.files.read_text("/index.html")
    await io.files.write("/index.html", page.replace("<h1>", "<h1 class=loud>"))
    if (context.context.run_id, context.context.attempt) == ("page", 1):
        print(f"One file of two is written. Kill me now: kill -9 {os.getpid()}")
        await asyncio.sleep(10)
    await io.files.write("/style.css", f".loud {{ color: {colour} }}\n")
    return "done"


def think(said: Conversation) -> Ask | Say:
    """Stands for a model, unless OPENAI_API_KEY is set."""
    build: list[Ask | Say] = [
        Ask("set_todo", {"item": "page", "is_done": False}),
        Ask("write_file", {"path": "/index.html", "content": "<h1>Otters</h1>\n<p>They swim.</p>\n"}),
        Ask("edit_file", {"path": "/index.html", "old": "They swim", "new": "They swim, and hold hands"}),
        Ask("set_todo", {"item": "page", "is_done": True}),
        Say("The page is there."),
    ]
    colour: list[Ask | Say] = [
        Ask("set_todo", {"item": "colour", "is_done": False}),
        Ask("restyle", {"colour": said.message.split()[-1]}),
        Ask("set_todo", {"item": "colour", "is_done": True}),
        Say("The heading has its colour."),
    ]
    return (build if said.message == TASKS["build"] else colour)[len(said.calls)]


agent = Agent[Turn](name="coder", instructions="Work, and keep a to-do list of it.")
agent.tools = [set_todo, restyle, *file_tools()]


@journal.agent(docs=[Todo])
async def coder(turn: Turn, task: str) -> str:
    return str((await DurableRunner.run(agent, task, context=turn)).final_output)


async def main() -> None:
    async with journal:
        for key, task in TASKS.items():
            print(await coder.run(task, run_id="page", key=key))
        head = (await journal.get("page")).head
        for record in (head // 3, head * 2 // 3, head):
            todo = await journal.docs.get("page", Todo, upto=record)
            print(f"\nBehind record {record}, to do: {todo}")
            for path in await journal.files.glob("page", upto=record):
                print(f"{path}: {(await journal.files.read('page', path, upto=record)).decode()}", end="")


if __name__ == "__main__":
    with bundled_model(think):
        asyncio.run(main())
