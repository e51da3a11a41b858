# SPDX-License-Identifier: Apache-2.0
"""openai_schema.py - judge every answer of a server by OpenAI's own schemas

A transport between the client and the network reads what passes: each whole
answer, each event of each stream, and each error is validated against the
schema that tests/data/openai/schemas.json has for it, and by the client's types.
What is wrong is kept in `faults`; the client sees what it would have seen
without.
"""
import json
import os

import jsonschema
import openai.types
import openai.types.chat
import pydantic

try:
    import httpx2 as httpx
except ImportError:
    import httpx

TOP = os.environ["KVMM_TOP"]
faults = []
seen = {}


def nullable(o):
    """OpenAPI 3.0's word for "or null", which the document still uses."""
    if isinstance(o, list):
        return [nullable(v) for v in o]
    if not isinstance(o, dict):
        return o
    r = {k: nullable(v) for k, v in o.items() if k != "nullable"}
    if o.get("nullable") is True:
        return {"anyOf": [r, {"type": "null"}]}
    return r


def load():
    with open(f"{TOP}/tests/data/openai/schemas.json") as f:
        doc = nullable(json.load(f))
    schemas = doc["components"]["schemas"]
    # The document gives events of completions the shape of a whole completion.
    # It forgets that events before the last have no reason and no usage: its own
    # example of a stream has null there.
    chunk = json.loads(json.dumps(schemas["CreateCompletionResponse"]))
    props = chunk["properties"]["choices"]["items"]["properties"]
    for where, key in ((props, "finish_reason"), (chunk["properties"], "usage")):
        where[key] = {"anyOf": [where[key], {"type": "null"}]}
    schemas["CompletionChunk"] = chunk
    # It also forgets that the first token of an echoed prompt has no
    # probability.
    for name in ("CreateCompletionResponse", "CompletionChunk"):
        choice = schemas[name]["properties"]["choices"]["items"]["properties"]
        lists = choice["logprobs"]["anyOf"][0]["properties"]
        for key in ("token_logprobs", "top_logprobs"):
            lists[key]["items"] = {"anyOf": [lists[key]["items"],
                                             {"type": "null"}]}
    return {n: jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{n}", **doc}) for n in schemas}


VALIDATORS = load()
# The client's own types of the same answers.  Its type of a whole completion is
# also that of events, which have no reason before the end.
TYPES = {
    "CreateCompletionResponse": openai.types.Completion,
    "CreateChatCompletionResponse": openai.types.chat.ChatCompletion,
    "CreateChatCompletionStreamResponse": openai.types.chat.ChatCompletionChunk,
    "Model": openai.types.Model,
}


def without_first(value):
    """Neither do the types know a token without a probability."""
    for c in value.get("choices", []):
        told = c.get("logprobs") or {}
        for key, other in (("token_logprobs", 0.0), ("top_logprobs", {})):
            if told.get(key) and told[key][0] is None:
                told[key][0] = other
    return value


def judge(name, text, where):
    seen[name] = seen.get(name, 0) + 1
    try:
        value = json.loads(text)
    except ValueError:
        faults.append(f"{where}: no JSON: {text[:200]}")
        return
    for e in VALIDATORS[name].iter_errors(value):
        path = "/".join(str(p) for p in e.absolute_path)
        faults.append(f"{where}: {name}: {path}: {e.message[:300]}")
    try:
        if name in TYPES:
            TYPES[name].model_validate(without_first(value), strict=True)
    except pydantic.ValidationError as e:
        faults.append(f"{where}: {name}: {e}")


def judge_events(path, data, complete):
    name = ("CreateChatCompletionStreamResponse" if "chat" in path
            else "CompletionChunk")
    events = data.split(b"\n\n")
    last = events.pop()
    if complete and last:
        faults.append(f"{path}: a stream ends within an event: {last[:100]}")
    said = [e[6:].decode() for e in events if e.startswith(b"data: ")]
    if len(said) != len(events):
        faults.append(f"{path}: an event without data")
    for i, e in enumerate(said):
        if e == "[DONE]":
            if i + 1 != len(said):
                faults.append(f"{path}: more behind [DONE]")
        elif e.startswith('{"error"'):
            judge("ErrorResponse", e, path)
            if i + 1 != len(said):
                faults.append(f"{path}: more behind an error")
        else:
            judge(name, e, path)
    if complete and said and said[-1] != "[DONE]" and "error" not in said[-1]:
        faults.append(f"{path}: a stream without [DONE]")


def judge_answer(request, response, data, complete):
    path = request.url.path
    kind = response.headers.get("content-type", "")
    if not response.headers.get("x-request-id"):
        faults.append(f"{path}: no X-Request-Id")
    if kind.startswith("text/event-stream"):
        judge_events(path, data, complete)
        return
    if not complete:
        return
    if response.status_code in (429, 503) and \
            not response.headers.get("retry-after"):
        faults.append(f"{path}: {response.status_code} without Retry-After")
    if response.status_code >= 400:
        judge("ErrorResponse", data, path)
    elif path.endswith("/chat/completions"):
        judge("CreateChatCompletionResponse", data, path)
    elif path.endswith("/completions"):
        judge("CreateCompletionResponse", data, path)
    elif path.endswith("/models"):
        judge("ListModelsResponse", data, path)
    elif "/models/" in path:
        judge("Model", data, path)


class Read(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer, kept while it passes."""

    def __init__(self, request, response):
        self.request, self.response = request, response
        self.inner, self.data, self.complete = response.stream, b"", False
        self.judged = False

    def __iter__(self):
        for piece in self.inner:
            self.data += piece
            yield piece
        self.complete = True

    async def __aiter__(self):
        async for piece in self.inner:
            self.data += piece
            yield piece
        self.complete = True

    def end(self):
        if not self.judged:
            self.judged = True
            judge_answer(self.request, self.response, self.data, self.complete)

    def close(self):
        self.inner.close()
        self.end()

    async def aclose(self):
        await self.inner.aclose()
        self.end()


def watch(request, response):
    statuses.append(response.status_code)
    response.stream = Read(request, response)
    return response


class Transport(httpx.HTTPTransport):
    def handle_request(self, request):
        request.headers["accept-encoding"] = "identity"
        return watch(request, super().handle_request(request))


class AsyncTransport(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request):
        request.headers["accept-encoding"] = "identity"
        return watch(request, await super().handle_async_request(request))


statuses = []
