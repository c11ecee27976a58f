"""Plays the scenes of the suite with Anthropic's client."""

import json
from typing import Any

from anthropic import AsyncAnthropic

from journal import Turn
from journal.adapters.anthropic import durable_client
from journal.demo.loopback import Reply as HttpReply
from tests.adapters.drivers.raw import SceneServer, run_tool, scene, until_said
from tests.adapters.suite import Ask, Reply


def told(body: Any) -> list[str]:
    return [
        part["content"]
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "tool_result"
    ]


def write(body: Any, reply: Reply) -> HttpReply:
    content: list[Any] = [
        {"type": "tool_use", "id": ask.call_id, "name": ask.tool, "input": {"order": ask.order}}
        for ask in reply.asks
    ] or [{"type": "text", "text": reply.text}]
    reason = "tool_use" if reply.asks else "end_turn"
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if not body.get("stream"):
        return HttpReply(message)
    events: list[Any] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(content):
        if block["type"] == "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in reply.parts]
        else:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    return HttpReply(events=tuple(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events))


def answered(results: list[tuple[Ask, str]]) -> list[Any]:
    parts = [
        {"type": "tool_result", "tool_use_id": ask.call_id, "content": output} for ask, output in results
    ]
    return [{"role": "user", "content": parts}]


async def work(turn: Turn, prompt: str) -> Any:
    with SceneServer(told, write) as server:
        async with durable_client(AsyncAnthropic(api_key="k", base_url=server.url)) as client:

            async def ask(messages: list[Any]) -> tuple[str, list[Any], list[Ask]]:
                if scene.is_streamed:
                    async with client.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
                        async for event in stream:
                            if event.type == "text":
                                scene.effect("part")
                        message: Any = await stream.get_final_message()
                else:
                    message = await client.messages.create(model="m", max_tokens=9, messages=messages)
                parts = [part.model_dump(mode="json", exclude_none=True) for part in message.content]
                asks = [
                    Ask(part["name"], part["id"], part["input"]["order"])
                    for part in parts
                    if part["type"] == "tool_use"
                ]
                text = "".join(part["text"] for part in parts if part["type"] == "text")
                return text, [{"role": "assistant", "content": parts}], asks

            return await until_said(ask, answered, lambda a: run_tool(turn, a.tool, a.order), prompt)


if __name__ == "__main__":
    scene.play(work)
