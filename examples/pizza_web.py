"""An agent behind a web page that takes pizza orders, and asks its customers what it does not know.

    python examples/pizza_web.py                       many customers of its own, no network, and an end
    uvicorn examples.pizza_web:app                     the page, at http://127.0.0.1:8000
    PIZZA_MODEL=openai/gpt-5 uvicorn examples.pizza_web:app      with a real model, if its key is set

It needs starlette. What happens to an order is kept in a numbered list, and a browser that comes back says what it has
seen (`Last-Event-ID`), so that it misses nothing and hears nothing twice.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import sayso
from sayso.channels import HumanInputRequest, create_queue_requester, human_in_the_loop
from sayso.errors import DecisionRefusedError
from sayso.model.ids import new_run_id
from sayso.model.text import escape

SIZES, TOPPINGS = ["small", "medium", "large"], ["cheese", "ham", "meatballs", "mushrooms"]
MOST_ORDERS = 1000
SAFE = {"Content-Security-Policy": "default-src 'self'", "X-Content-Type-Options": "nosniff"}

# -- the agent ---------------------------------------------------------------------------------------------------------


class Wish(BaseModel):
    """Take an order for pizzas. Ask the customer about what is missing or cannot be."""

    customer_request: str = Field(min_length=1, max_length=2000)


class Pizza(BaseModel):
    """One pizza."""

    size: Literal["small", "medium", "large"]
    toppings: list[str]
    special_instructions: str | None = None


class Pizzas(BaseModel):
    """What the kitchen gets."""

    pizzas: list[Pizza]


async def scripted(messages: list[dict[str, Any]], _tools: list[dict[str, Any]]) -> Any:
    """Stand in for a model: ask for a topping and a size until both are known."""
    heard = [message["content"] for message in messages if message["role"] == "tool"]
    words = " ".join([messages[1]["content"], *heard]).casefold()
    toppings = [topping for topping in TOPPINGS if topping in words]
    sizes = [size for size in SIZES if size in words]
    if not toppings:
        return [("ask_human", {"question": f"You said: {messages[1]['content']}. Which of {', '.join(TOPPINGS)}?"})]
    if not sizes:
        return [("ask_human", {"question": f"Which size: {', '.join(SIZES)}?"})]
    return [("finish", {"pizzas": [{"size": sizes[0], "toppings": toppings}]})]


MODEL = os.environ.get("PIZZA_MODEL") or scripted

# -- orders ------------------------------------------------------------------------------------------------------------


class Order:
    """One customer's order: everything that happened to it, for whoever listens, now or later."""

    def __init__(self) -> None:
        self.id = new_run_id()
        self.asked: dict[str, HumanInputRequest] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.is_over = False
        self._news = asyncio.Condition()
        self._questions: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._pending: dict[str, dict[str, Any]] = {}
        self._work: asyncio.Task[None] | None = None

    def begin(self, wish: str) -> None:
        """Let the agent work on it."""
        self._work = asyncio.create_task(self._worked_on(wish))

    async def _worked_on(self, wish: str) -> None:
        human = human_in_the_loop(create_queue_requester(self._questions, self._pending), expires="1h")

        async def ask_human(question: str) -> str:
            """Ask the customer a question and wait for the answer."""
            answer = await human.acall(question=question)
            await self.tell("answered", {"answer": escape(answer, block=True)})  # whoever answered, and where
            return answer

        agent = sayso.ReAct((Wish, Pizzas), [ask_human], model=MODEL, max_iters=6, enable_ask_to_user=False)
        asking = asyncio.create_task(self._ask())
        try:
            done = await agent.aforward(customer_request=wish)
            await self.tell("order", {"pizzas": [pizza.model_dump() for pizza in done.pizzas]})
        except (sayso.ConfirmationRejected, sayso.SaysoError) as why:
            await self.tell("failed", {"why": escape(str(why))})
        finally:
            asking.cancel()

    async def _ask(self) -> None:
        """Tell of every question that the agent puts on its queue."""
        while True:
            item = await self._questions.get()
            self.asked[item["id"]] = self._pending.pop(item["id"])["request"]
            await self.tell("question", {**item, "question": escape(item["question"], block=True)})

    async def tell(self, kind: str, what: dict[str, Any]) -> None:
        """Let something have happened."""
        async with self._news:
            self.events.append((kind, what))
            self.is_over = self.is_over or kind in {"order", "failed"}
            self._news.notify_all()

    async def after(self, seen: int) -> AsyncIterator[str]:
        """Yield what happened after the events that were seen, as it happens, until the order is over."""
        while True:
            for number, (kind, what) in enumerate(self.events[seen:], seen + 1):
                yield f"id: {number}\nevent: {kind}\ndata: {json.dumps(what)}\n\n"
                seen = number
            if self.is_over and seen >= len(self.events):
                return
            try:
                async with asyncio.timeout(15), self._news:
                    await self._news.wait_for(lambda seen=seen: len(self.events) > seen)
            except TimeoutError:
                yield ": still here\n\n"  # so that nothing in between takes the line for dead


ORDERS: dict[str, Order] = {}


def order_of(request: Request) -> Order:
    """Return the order that the address names; knowing its random id is the customer's right to it."""
    order = ORDERS.get(request.path_params["order"])
    if order is None:
        raise HTTPException(404, "there is no such order")
    return order


# -- the app -----------------------------------------------------------------------------------------------------------


async def start(request: Request) -> JSONResponse:
    wish = Wish.model_validate(await _json(request))
    for old in [order.id for order in ORDERS.values() if order.is_over][: max(0, len(ORDERS) - MOST_ORDERS + 1)]:
        del ORDERS[old]
    if len(ORDERS) >= MOST_ORDERS:
        raise HTTPException(503, "too many orders at once; try again in a minute")
    order = Order()
    ORDERS[order.id] = order
    order.begin(wish.customer_request)
    return JSONResponse({"order": order.id}, 201, SAFE)


async def events(request: Request) -> StreamingResponse:
    order, seen = order_of(request), request.headers.get("last-event-id", "0")
    if not (seen.isascii() and seen.isdigit()) or int(seen) > len(order.events):
        raise HTTPException(400, "Last-Event-ID names no event of this order")
    headers = {**SAFE, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(order.after(int(seen)), media_type="text/event-stream", headers=headers)


async def respond(request: Request) -> JSONResponse:
    order = order_of(request)
    asked = order.asked.get(request.path_params["question"])
    if asked is None:
        raise HTTPException(404, "this order has no such question")
    answer = (await _json(request)).get("answer")
    if not isinstance(answer, str) or len(answer) > 2000:
        raise HTTPException(422, "an answer is a text of at most 2,000 characters")
    try:
        await asyncio.to_thread(asked.set_response, answer, by="customer")
    except DecisionRefusedError as refusal:  # somebody was first, or it is too late
        raise HTTPException(409, str(refusal)) from None
    return JSONResponse({"answered": asked.id}, 200, SAFE)


async def _json(request: Request) -> dict[str, Any]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > 20_000:
            raise HTTPException(413, "too long")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise HTTPException(422, "a JSON object is wanted")
    return found


async def page(_: Request) -> Response:
    return Response(PAGE, media_type="text/html", headers=SAFE)


async def script(_: Request) -> Response:
    return Response(SCRIPT, media_type="text/javascript", headers=SAFE)


async def refused(_: Request, why: Exception) -> JSONResponse:
    status = why.status_code if isinstance(why, HTTPException) else 422
    said = why.detail if isinstance(why, HTTPException) else "customer_request is a text of 1 to 2,000 characters"
    return JSONResponse({"error": said}, status, SAFE)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Pizza</title>
<script src="/pizza.js" defer></script>
<h1>Pizza</h1><ol id="said" aria-live="polite"></ol>
<form><label>What is your order? <input name="text" required maxlength="2000"></label> <button>Send</button></form>
"""
# `textContent` takes no markup, and the order's id behind the # lets a page that is loaded again go on.
SCRIPT = """const form = document.forms[0], said = document.getElementById("said");
let question = null;
const say = text => { const row = document.createElement("li"); row.textContent = text; said.append(row); };
const post = async (path, body) => {
  const answer = await fetch(path, { method: "POST", body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) say(told.error);
  return told;
};
const listen = () => {
  const events = new EventSource(`/orders/${location.hash.slice(1)}/events`);
  events.onerror = () => { if (events.readyState === 2) { say("This order is gone."); location.hash = ""; } };
  const on = (kind, act) => events.addEventListener(kind, event => act(JSON.parse(event.data)));
  on("question", told => { question = told.id; say(told.question); });
  on("answered", told => { question = null; say(`> ${told.answer}`); });
  on("order", told => { events.close(); say(`Order: ${JSON.stringify(told.pizzas)}`); location.hash = ""; });
  on("failed", told => { events.close(); say(`No order: ${told.why}`); location.hash = ""; });
};
form.addEventListener("submit", async event => {
  event.preventDefault();
  const text = form.text.value, path = `/orders/${location.hash.slice(1)}`;
  form.reset();
  if (question) return post(`${path}/questions/${question}`, { answer: text });
  if (location.hash.length > 1) return say("One moment, please.");
  say(`> ${text}`);
  const told = await post("/orders", { customer_request: text });
  if (told.order) { location.hash = told.order; listen(); }
});
if (location.hash.length > 1) listen();
"""

app = Starlette(
    routes=[
        Route("/", page),
        Route("/pizza.js", script),
        Route("/orders", start, methods=["POST"]),
        Route("/orders/{order}/events", events),
        Route("/orders/{order}/questions/{question}", respond, methods=["POST"]),
    ],
    exception_handlers={HTTPException: refused, ValidationError: refused},
)

# -- customers of its own ----------------------------------------------------------------------------------------------


async def call(method: str, path: str, body: bytes = b"", seen: int = 0) -> AsyncIterator[dict[str, Any]]:
    """Send a request to the app without a server, and yield what it sends back."""
    sent: asyncio.Queue[Any] = asyncio.Queue()
    given = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "headers": [(b"last-event-id", b"%d" % seen)],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return given.pop() if given else await asyncio.Event().wait() or {}

    answering = asyncio.create_task(app(scope, receive, sent.put))
    try:
        while (message := await sent.get())["type"] == "http.response.start" or message.get("more_body"):
            yield message
        yield message
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def post(path: str, body: object) -> tuple[int, dict[str, Any]]:
    first, *others = [message async for message in call("POST", path, json.dumps(body).encode())]
    return first["status"], json.loads(b"".join(message["body"] for message in others))


async def heard(path: str, seen: int, most: int) -> list[tuple[int, str, dict[str, Any]]]:
    """Listen to an order until it is over, or until the line goes dead after `most` events."""
    found: list[tuple[int, str, dict[str, Any]]] = []
    async with aclosing(call("GET", path, seen=seen)) as messages:
        async for message in messages:
            if lines := message.get("body", b"").decode().splitlines():
                number, kind, what = (line.partition(": ")[2] for line in lines[:3])
                found.append((int(number), kind, json.loads(what)))
            if len(found) == most:
                break
    return found


async def customer(number: int) -> list[str]:
    """Order a pizza on a line that goes dead after every event, and try to answer everything twice."""
    _, told = await post("/orders", {"customer_request": f"a pizza with <b>{number}</b> rocks"})
    path, said, seen = f"/orders/{told['order']}", list[str](), 0
    while True:
        for place, kind, what in await heard(f"{path}/events", seen, most=1):
            if place != seen + 1:
                raise RuntimeError(f"event {place} came after event {seen}")
            seen = place
            said.append(kind)
            if kind == "order":
                return [*said, json.dumps(what["pizzas"])]
            if kind == "question":
                if "Which of" in what["question"] and f"<b>{number}</b>" not in what["question"]:
                    raise RuntimeError("somebody else's question")
                answer = {"answer": "meatballs" if "Which of" in what["question"] else SIZES[number % 3]}
                tries = await asyncio.gather(*(post(f"{path}/questions/{what['id']}", answer) for _ in range(2)))
                said.append(" and ".join(str(status) for status in sorted(status for status, _ in tries)))


async def main(count: int = 30) -> None:
    """Let many customers order at once."""
    ends = await asyncio.gather(*map(customer, range(count)))
    print(*ends[0], sep="\n")
    kinds = [kind for end in ends for kind in end if kind in {"question", "answered", "order"}]
    print(f"{count} orders, {len(kinds)} events, none lost, none twice")
    for path in ("/orders/nobody/questions/rq_1", f"/orders/{next(iter(ORDERS))}/questions/rq_1"):
        print(*(await post(path, {"answer": "small"})))


if __name__ == "__main__":
    asyncio.run(main())
