"""A web application on Tideline: orders in a collection, what happens to them in a channel.

    python examples/orders_web

    GET  /                  the page
    PUT  /orders/7          store an order, and tell whoever follows it
    GET  /orders/7          one order
    GET  /orders?state=new  those in a state, newest first
    GET  /orders/7/events   what happens to it from now on, as server-sent events
    GET  /events            what happens to any of them

One client for all requests, made when the application starts: calls of many requests share its
connections. Without TIDELINE_URL the orders are in a folder of this process, and the rest of the
code stays as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

import tideline
from tideline.aprotocols import AsyncChannel, AsyncCollection, AsyncDatabase


async def database() -> AsyncDatabase:
    url = os.environ.get("TIDELINE_URL")
    if url is None:
        return await tideline.aopen(os.environ.get("TIDELINE_FOLDER", "data"))
    return await tideline.aconnect(url, token=os.environ.get("TIDELINE_TOKEN"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with await database() as db:
        app.state.orders = await db.collection("orders", key="id", indexes={"state": "lazy"})
        app.state.news = await db.channel("order-news", space=tideline.Topics())
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(tideline.TidelineError)
def refused(request: Request, error: tideline.TidelineError) -> JSONResponse:
    status = 400 if isinstance(error, tideline.InvalidRequest) else 503
    return JSONResponse({"detail": str(error)}, status)


def orders(request: Request) -> AsyncCollection:
    found: AsyncCollection = request.app.state.orders
    return found


def news(request: Request) -> AsyncChannel:
    found: AsyncChannel = request.app.state.news
    return found


Orders = Depends(orders)
News = Depends(news)


@app.get("/", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))


@app.put("/orders/{id}")
async def put_order(
    id: int, order: dict[str, Any], orders: AsyncCollection = Orders, news: AsyncChannel = News
) -> dict[str, Any]:
    stored = await orders.update(id, {"$set": order}, upsert=True)
    await news.publish(f"orders/{id}", stored, ttl_s=3_600)
    return stored


@app.get("/orders/{id}")
async def get_order(id: int, orders: AsyncCollection = Orders) -> dict[str, Any]:
    found = await orders.get(id)
    if found is None:
        raise HTTPException(404, "no such order")
    return found


@app.get("/orders")
async def list_orders(
    state: str | None = None, limit: int = 100, orders: AsyncCollection = Orders
) -> list[dict[str, Any]]:
    return await orders.find({} if state is None else {"state": state}, limit=limit)


@app.get("/orders/{id}/events")
async def follow_order(id: int, news: AsyncChannel = News) -> StreamingResponse:
    return await follow(f"orders/{id}", news)


@app.get("/events")
async def follow_all(news: AsyncChannel = News) -> StreamingResponse:
    return await follow("orders", news)  # a topic has those below it


async def follow(topic: str, news: AsyncChannel) -> StreamingResponse:
    sub = await news.subscribe(topic, user="web", until_s=3_600)

    async def stream() -> AsyncIterator[str]:
        try:
            yield ": following\n\n"
            async for event in sub:
                yield f"data: {json.dumps(event.body)}\n\n"
        finally:  # the browser has gone
            await sub.cancel()

    return StreamingResponse(stream(), media_type="text/event-stream")
