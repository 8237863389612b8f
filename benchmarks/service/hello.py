"""`python -m tilewise.benchmarks.service.hello PORT`: a minimal Starlette application, as a yardstick."""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/", hello)])
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="error", access_log=False)
