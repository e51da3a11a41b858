#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openai_client.py - the official OpenAI client against kvrt serve

usage: openai_client.py BASE_URL HOLD_PID

Nothing of the client is changed but its address.  The pydantic models of the
client judge every answer.  The daemon, a child of HOLD_PID, is killed once to
see the client's own retries succeed.  Prints a line of counts as the other
tests do.
"""
import asyncio
import os
import signal
import sys
import traceback

import openai

BASE = sys.argv[1]
HOLD = sys.argv[2]
KEY = "sk-test"
LETTER = ("My dear Watson, said Sherlock Holmes, as we sat on either side of "
          "the fire in his lodgings at Baker Street,")

client = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0)


def test_models():
    ids = [m.id for m in client.models.list()]
    assert len(ids) == 1, ids
    m = client.models.retrieve(ids[0])
    assert m.id == ids[0] and m.object == "model" and m.created > 0


def test_completion():
    r = client.completions.create(model=MODEL, prompt="In the beginning",
                                  max_tokens=12, temperature=0)
    assert r.object == "text_completion" and r.id.startswith("cmpl-")
    assert r.choices[0].finish_reason == "length"
    assert len(r.choices[0].text) > 5
    assert r.usage.completion_tokens == 12
    assert r.usage.total_tokens == r.usage.prompt_tokens + 12


def test_cached_tokens():
    for _ in range(2):
        r = client.completions.create(model=MODEL, prompt=LETTER,
                                      max_tokens=2)
    assert r.usage.prompt_tokens_details.cached_tokens >= 16


def test_forms_of_prompts():
    one = client.completions.create(model=MODEL, prompt="The kitten", n=2,
                                    max_tokens=6, seed=5)
    many = client.completions.create(model=MODEL, n=2, max_tokens=6, seed=5,
                                     prompt=["In the", "The kitten"])
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert many.choices[3].text == one.choices[1].text
    ids = client.completions.create(model=MODEL, prompt=[1, 2, 3],
                                    max_tokens=2)
    assert ids.usage.prompt_tokens == 3


def collect(stream):
    texts, ends, usage = {}, {}, None
    for chunk in stream:
        if chunk.usage:
            usage = chunk.usage
        for c in chunk.choices:
            texts[c.index] = texts.get(c.index, "") + c.text
            if c.finish_reason:
                assert c.index not in ends
                ends[c.index] = c.finish_reason
    return texts, ends, usage


def test_stream():
    whole = client.completions.create(model=MODEL, prompt="In the beginning",
                                      n=3, max_tokens=30, seed=8)
    texts, ends, usage = collect(client.completions.create(
        model=MODEL, prompt="In the beginning", n=3, max_tokens=30, seed=8,
        stream=True, stream_options={"include_usage": True}))
    assert [texts[i] for i in range(3)] == [c.text for c in whole.choices]
    assert set(ends.values()) <= {"length", "stop"} and len(ends) == 3
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_chat():
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello there"}]
    whole = client.chat.completions.create(model=MODEL, messages=messages,
                                           max_tokens=16, seed=3)
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.refusal is None
    text, role, end = "", None, None
    for chunk in client.chat.completions.create(
            model=MODEL, messages=messages, max_completion_tokens=16, seed=3,
            stream=True):
        delta = chunk.choices[0].delta
        role = role or delta.role
        text += delta.content or ""
        end = end or chunk.choices[0].finish_reason
    assert role == "assistant" and end in ("length", "stop")
    assert text == whole.choices[0].message.content


def test_stream_helper():
    with client.chat.completions.stream(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}],
            max_tokens=8, seed=1) as s:
        for _ in s:
            pass
        # Not get_final_completion(), which takes a length limit for an error.
        done = s.current_completion_snapshot
    assert done.choices[0].message.content
    assert done.choices[0].finish_reason in ("length", "stop")


def test_stop():
    whole = client.completions.create(model=MODEL, prompt="In the beginning",
                                      max_tokens=60, seed=21)
    text = whole.choices[0].text
    stop = text[len(text) // 2:][:6]
    cut = client.completions.create(model=MODEL, prompt="In the beginning",
                                    max_tokens=60, seed=21, stop=stop)
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].text == text[:text.index(stop)]


def expect(kind, status, call):
    try:
        call()
    except kind as e:
        assert e.status_code == status, e
        return e
    raise AssertionError("no " + kind.__name__)


def test_errors():
    def ask(**more):
        return client.completions.create(model=more.pop("model", MODEL),
                                         prompt="a", **more)
    e = expect(openai.BadRequestError, 400, lambda: ask(logprobs=3))
    assert e.param == "logprobs" and e.type == "invalid_request_error"
    e = expect(openai.BadRequestError, 400, lambda: ask(presence_penalty=1))
    assert e.param == "presence_penalty"
    e = expect(openai.BadRequestError, 400, lambda: ask(max_tokens=99999))
    assert e.code == "context_length_exceeded"
    e = expect(openai.BadRequestError, 400,
               lambda: ask(extra_body={"no_such": 1}))
    assert e.param == "no_such"
    e = expect(openai.NotFoundError, 404, lambda: ask(model="gpt-99"))
    assert e.code == "model_not_found"
    e = expect(openai.BadRequestError, 400, lambda: ask(stream=True, n=1000))
    assert e.param == "n"
    other = openai.OpenAI(base_url=BASE, api_key="wrong", max_retries=0)
    expect(openai.AuthenticationError, 401, lambda: list(other.models.list()))


def test_cancel():
    for _ in range(5):
        s = client.completions.create(model=MODEL, prompt="In the beginning",
                                      max_tokens=1000, stream=True,
                                      extra_body={"ignore_eos": True})
        next(iter(s))
        s.close()


def test_timeout():
    hasty = client.with_options(timeout=0.05)
    try:
        hasty.completions.create(model=MODEL, prompt="In the beginning",
                                 max_tokens=1000, n=8,
                                 extra_body={"ignore_eos": True})
    except openai.APITimeoutError:
        return
    raise AssertionError("no timeout")


def test_many_at_once():
    async def run():
        many = openai.AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=0)

        async def one(i):
            out = ""
            s = await many.completions.create(
                model=MODEL, prompt=f"Number {i}", max_tokens=20, seed=i,
                stream=True)
            async for chunk in s:
                for c in chunk.choices:
                    out += c.text
            return out
        return await asyncio.gather(*[one(i) for i in range(64)])
    texts = asyncio.run(run())
    assert len(texts) == 64 and all(texts)


def daemon_pid():
    with open(f"/proc/{HOLD}/task/{HOLD}/children") as f:
        children = f.read().split()
    for pid in children:
        with open(f"/proc/{pid}/comm") as f:
            if f.read().strip() == "kvmm":
                return int(pid)
    raise AssertionError("no daemon")


def test_retries():
    """The daemon dies: what was open fails, and the next one is retried."""
    pid = daemon_pid()
    s = client.completions.create(model=MODEL, prompt="In the beginning",
                                  max_tokens=1000, stream=True,
                                  extra_body={"ignore_eos": True})
    it = iter(s)
    next(it)
    os.kill(pid, signal.SIGKILL)
    try:
        for _ in it:
            pass
        raise AssertionError("the stream ended as if nothing had been")
    except openai.APIError as e:
        assert e.code == "daemon_gone", e
    patient = client.with_options(max_retries=10)
    r = patient.completions.create(model=MODEL, prompt="a", max_tokens=2)
    assert r.usage.completion_tokens == 2


MODEL = client.models.list().data[0].id
tests = [f for name, f in list(globals().items()) if name.startswith("test_")]
failed = 0
for f in tests:
    try:
        f()
    except Exception:
        failed += 1
        print(f"FAILED: {f.__name__}")
        traceback.print_exc(limit=4)
print(f"openai {openai.__version__}")
print(f"{(len(tests) - failed) * 100 // len(tests)}%: Checks: {len(tests)}, "
      f"Failures: {failed}, Errors: 0")
sys.exit(failed != 0)
