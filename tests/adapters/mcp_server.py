"""An MCP server on stdio: ``python mcp_server.py EFFECTS``; each call is a line of that file.

The refund of the order `die` is its end.
"""

import os
import signal
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("shop")


def effect(line: str) -> None:
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def lookup(order: str) -> str:
    effect(f"lookup {order}")
    return f"order {order}"


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True))
def refund(order: str, ctx: Context[Any, Any]) -> str:
    meta: Any = ctx.request_context.meta
    key = dict(meta or {}).get("durable-journal/idempotency-key", "none")
    effect(f"refund {order} {key}")
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"refunded {order}"


if __name__ == "__main__":
    server.run()
