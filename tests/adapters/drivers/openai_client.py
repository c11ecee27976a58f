"""Plays the scenes of the suite with OpenAI's client, Responses API."""

import json
from typing import Any

from openai import AsyncOpenAI

from journal import Turn
from journal.adapters.openai import durable_client
from journal.demo.loopback import Reply as HttpReply
from tests.adapters.drivers.raw import SceneServer, run_tool, scene, until_said
from tests.adapters.suite import Ask, Reply


def told(body: Any) -> list[str]:
    return [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]


def write(body: Any, reply: Reply) -> HttpReply:
    items: list[Any] = [
        {
            "type": "function_call",
            "id": f"fc_{ask.call_id}",
            "call_id": ask.call_id,
            "name": ask.tool,
            "arguments": json.dumps({"order": ask.order}),
            "status": "completed",
        }
        for ask in reply.asks
    ]
    if not items:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        items = [
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        ]
    response = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not body.get("stream"):
        return HttpReply(response)
    events: list[Any] = [{"type": "response.created", "response": {**response, "output": []}}]
    for number, item in enumerate(items):
        at = {"output_index": number, "item_id": item["id"]}
        if item["type"] == "message":
            empty = {**item["content"][0], "text": ""}
            events += [
                {"type": "response.output_item.added", **at, "item": {**item, "content": []}},
                {"type": "response.content_part.added", **at, "content_index": 0, "part": empty},
                *(
                    {
                        "type": "response.output_text.delta",
                        **at,
                        "content_index": 0,
                        "delta": p,
                        "logprobs": [],
                    }
                    for p in reply.parts
                ),
            ]
        else:
            events.append({"type": "response.output_item.added", **at, "item": {**item, "arguments": ""}})
        events.append({"type": "response.output_item.done", **at, "item": item})
    events.append({"type": "response.completed", "response": response})
    frames = [
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    ]
    return HttpReply(events=tuple(frames))


def answered(results: list[tuple[Ask, str]]) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": ask.call_id, "output": output} for ask, output in results
    ]


async def work(turn: Turn, prompt: str) -> Any:
    with SceneServer(told, write) as server:
        async with durable_client(AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1")) as client:

            async def ask(messages: list[Any]) -> tuple[str, list[Any], list[Ask]]:
                if scene.is_streamed:
                    async with client.responses.stream(model="m", input=messages) as stream:
                        async for event in stream:
                            if event.type == "response.output_text.delta":
                                scene.effect("part")
                        response: Any = await stream.get_final_response()
                else:
                    response = await client.responses.create(model="m", input=messages)
                said = [item.model_dump(mode="json", exclude_none=True) for item in response.output]
                for item in said:
                    item.pop("parsed_arguments", None)  # the helper's own
                asks = [
                    Ask(item["name"], item["call_id"], json.loads(item["arguments"])["order"])
                    for item in said
                    if item["type"] == "function_call"
                ]
                return response.output_text, said, asks

            return await until_said(ask, answered, lambda a: run_tool(turn, a.tool, a.order), prompt)


if __name__ == "__main__":
    scene.play(work)
