#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openai_client.py - the official OpenAI client against kvrt serve

usage: openai_client.py BASE_URL HOLD_PID

Nothing of the client is changed but its address, and a transport that reads
along: every answer, every event of a stream and every error is judged by OpenAI's
published schemas and, strictly, by the pydantic models of the client
(openai_schema.py).  The daemon, a child of HOLD_PID, is killed once to
see the client's own retries succeed.  Prints a line of counts as the other
tests do.
"""
import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

import openai

import openai_schema

BASE = sys.argv[1]
HOLD = sys.argv[2]
KEY = "sk-test"
LETTER = ("My dear Watson, said Sherlock Holmes, as we sat on either side of "
          "the fire in his lodgings at Baker Street,")



def connect(base=BASE, key=KEY, **more):
    return openai.OpenAI(
        base_url=base, api_key=key, max_retries=0,
        http_client=openai.DefaultHttpxClient(
            transport=openai_schema.Transport()), **more)


client = connect()


@contextlib.contextmanager
def serving(*options):
    """One more server, of the same daemon; gives the client of it."""
    build = os.environ["KVMM_BUILD"]
    p = subprocess.Popen(
        [f"{build}/kvrt", "serve",
         f"{os.environ['KVMM_TOP']}/tests/data/demo-model", "--port", "0",
         "--threads", "1", "--mode", "exact", *options],
        stderr=subprocess.PIPE, text=True)
    try:
        url = None
        for line in p.stderr:
            m = re.search(r"listening on (http\S+?),", line)
            url = m.group(1) if m else url
            if " ready: " in line:
                break
        assert url, "it does not serve"
        yield connect(url + "/v1")
    finally:
        p.terminate()
        p.stderr.read()
        assert p.wait(40) == 0


def await_idle():
    """No block is held by anybody."""
    kvctl = f"{os.environ['KVMM_BUILD']}/kvctl"
    end = time.monotonic() + 5
    while True:
        text = subprocess.run([kvctl, "cat", "meminfo"], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
        held = {m[1]: int(m[2]) for m in
                re.finditer(r"^(Open|Sealed|Committed):?\s+(\d+)", text, re.M)}
        assert len(held) == 3, text
        if not any(held.values()):
            return
        assert time.monotonic() < end, held
        time.sleep(0.01)


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
        # Not get_final_completion(): it takes the end by a length limit for an error.
        done = s.current_completion_snapshot
    assert done.choices[0].message.content
    assert done.choices[0].finish_reason in ("length", "stop")


def tokens_of(logprobs):
    """Whole or of an event: each list says as much as the others."""
    nr = len(logprobs.tokens)
    assert nr == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    assert nr == len(logprobs.top_logprobs)
    return list(zip(logprobs.tokens, logprobs.token_logprobs,
                    logprobs.text_offset))


def test_logprobs():
    """Of a prompt and what follows it; a stream tells what the whole does."""
    def ask(**more):
        return client.completions.create(
            model=MODEL, prompt="In the beginning", max_tokens=12, seed=6,
            logprobs=3, **more)
    whole = ask().choices[0]
    told = tokens_of(whole.logprobs)
    assert len(told) == 12 and "".join(t[0] for t in told) == whole.text
    for (token, logprob, _), top in zip(told, whole.logprobs.top_logprobs):
        assert logprob <= 0 and top[token] == logprob
        assert len(top) in (3, 4) and logprob <= max(top.values())
    streamed = [t for chunk in ask(stream=True) for c in chunk.choices
                if c.logprobs for t in tokens_of(c.logprobs)]
    assert streamed == told, (streamed, told)
    echo = ask(echo=True).choices[0]
    both = tokens_of(echo.logprobs)
    assert both[0][1] is None and echo.logprobs.top_logprobs[0] is None
    assert [t[:2] for t in both[-12:]] == [t[:2] for t in told]
    scored = client.completions.create(
        model=MODEL, prompt=echo.text, max_tokens=0, echo=True, logprobs=0)
    assert scored.choices[0].text == echo.text
    assert scored.usage.completion_tokens == 0


def test_chat_logprobs():
    def ask(**more):
        return client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hello"}],
            max_tokens=10, seed=2, logprobs=True, top_logprobs=2, **more)
    choice = ask().choices[0]
    told = choice.logprobs.content
    assert b"".join(bytes(t.bytes) for t in told).decode() == \
        choice.message.content
    for t in told:
        assert len(t.top_logprobs) == 2
        assert t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob
        assert t.logprob <= t.top_logprobs[0].logprob <= 0
    streamed = [t for chunk in ask(stream=True) for c in chunk.choices
                if c.logprobs for t in c.logprobs.content]
    assert streamed == told


def test_sampling_fields():
    """Those that the client knows, and vLLM's beside them, do something."""
    def ask(**more):
        return client.completions.create(
            model=MODEL, prompt="In the beginning", max_tokens=24,
            temperature=0, **more).choices
    plain = ask()[0].text
    first = client.completions.create(
        model=MODEL, prompt="In the beginning", max_tokens=1, temperature=0,
        extra_body={"return_token_ids": True}).choices[0].token_ids[0]
    assert ask(logit_bias={str(first): -100})[0].text != plain
    assert ask(frequency_penalty=2)[0].text != plain
    assert ask(presence_penalty=2)[0].text != plain
    assert ask(extra_body={"repetition_penalty": 3})[0].text != plain
    only = ask(extra_body={"allowed_token_ids": [first],
                           "return_token_ids": True})[0].token_ids
    assert set(only) == {first}
    word = plain.split()[0]
    assert not ask(extra_body={"bad_words": [word]})[0].text.split()[0] == word


def test_best_of_and_beams():
    best = client.completions.create(model=MODEL, prompt="In the beginning",
                                     n=2, best_of=6, max_tokens=12, seed=1,
                                     logprobs=0)
    assert [c.index for c in best.choices] == [0, 1]
    means = [sum(c.logprobs.token_logprobs) / len(c.logprobs.tokens)
             for c in best.choices]
    assert means[0] >= means[1]
    assert best.usage.completion_tokens > 24
    beams = client.completions.create(
        model=MODEL, prompt="In the beginning", n=4, max_tokens=12,
        logprobs=0, extra_body={"use_beam_search": True})
    assert len({c.text for c in beams.choices}) == 4
    sums = [sum(c.logprobs.token_logprobs) for c in beams.choices]
    assert sums == sorted(sums, reverse=True), sums
    greedy = client.completions.create(model=MODEL, prompt="In the beginning",
                                       max_tokens=12, temperature=0, logprobs=0)
    assert sums[0] >= sum(greedy.choices[0].logprobs.token_logprobs) - 1e-4


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
    e = expect(openai.BadRequestError, 400, lambda: ask(suffix="the end"))
    assert e.param == "suffix" and e.type == "invalid_request_error"
    e = expect(openai.BadRequestError, 400, lambda: ask(logprobs=21))
    assert e.param == "logprobs"
    e = expect(openai.BadRequestError, 400, lambda: ask(presence_penalty=3))
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
    other = connect(key="wrong")
    expect(openai.AuthenticationError, 401, lambda: list(other.models.list()))
    chat = client.chat.completions
    e = expect(openai.BadRequestError, 400,
               lambda: chat.create(model=MODEL, messages=[]))
    assert e.param == "messages"
    e = expect(openai.NotFoundError, 404,
               lambda: client.models.retrieve("gpt-99"))
    assert e.code == "model_not_found"
    assert e.request_id


def test_hints():
    """What changes no text is accepted, in the forms of OpenAI's types."""
    chat = client.chat.completions
    say = {"model": MODEL, "messages": [{"role": "user", "content": "a"}],
           "max_tokens": 4, "seed": 1}
    plain = chat.create(**say).choices[0].message.content
    hints = {"metadata": {"a": "b"}, "store": True, "service_tier": "flex",
             "prompt_cache_key": "k", "prompt_cache_retention": "24h",
             "safety_identifier": "s", "user": "u", "verbosity": "low",
             "reasoning_effort": "minimal", "parallel_tool_calls": False,
             "prediction": {"type": "content", "content": "a"}}
    for name, value in hints.items():
        r = chat.create(**say, **{name: value})
        assert r.choices[0].message.content == plain, name
    events = chat.create(**say, stream=True, stream_options={
        "include_usage": True, "include_obfuscation": True})
    assert "".join(e.choices[0].delta.content or ""
                   for e in events if e.choices) == plain
    e = expect(openai.BadRequestError, 400,
               lambda: chat.create(**say, metadata={"a": 1}))
    assert e.param == "metadata" and e.code == "invalid_value"


def test_every_field():
    """The server knows each field that the client's types have."""
    kinds = ((openai.types.chat.completion_create_params, "/chat/completions",
              {"messages": [{"role": "user", "content": "a"}]}),
             (openai.types.completion_create_params, "/completions",
              {"prompt": "a"}))
    for types, path, body in kinds:
        for name in types.CompletionCreateParamsBase.__annotations__:
            client.post(path, cast_to=object,
                        body={name: None, "max_tokens": 1, **body}
                        if name != "max_tokens" else {name: None, **body,
                                                      "n": 1})


def test_request_ids():
    r = client.completions.create(model=MODEL, prompt="a", max_tokens=1)
    assert r._request_id and r.id == "cmpl-" + r._request_id
    r = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "a"}], max_tokens=1,
        extra_headers={"X-Request-Id": "mine-1"})
    assert r._request_id == "mine-1" and r.id == "chatcmpl-mine-1"


def test_cancel():
    for _ in range(5):
        s = client.completions.create(model=MODEL, prompt="In the beginning",
                                      max_tokens=1000, stream=True,
                                      extra_body={"ignore_eos": True})
        next(iter(s))
        s.close()
        await_idle()
    with client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "a"}], n=4,
            max_tokens=900, stream=True, extra_body={"ignore_eos": True}) as s:
        next(iter(s))
    await_idle()


def test_timeout():
    hasty = client.with_options(timeout=0.05)
    try:
        hasty.completions.create(model=MODEL, prompt="In the beginning",
                                 max_tokens=1000, n=8,
                                 extra_body={"ignore_eos": True})
    except openai.APITimeoutError:
        await_idle()
        return
    raise AssertionError("no timeout")


def test_server_timeout():
    """The server's own limit is an error of its own, before and in a stream."""
    with serving("--request-timeout", "1", "--kernels", "ref",
                 "--domain", "slow") as c:
        def ask(**more):
            return c.completions.create(
                model=MODEL, prompt="In the beginning", max_tokens=1000,
                extra_body={"ignore_eos": True}, **more)
        e = expect(openai.InternalServerError, 504, lambda: ask(n=64))
        assert e.code == "request_timeout", e
        try:
            for _ in ask(stream=True, n=32):
                pass
            raise AssertionError("the stream ended as if nothing had been")
        except openai.APIError as e:
            assert e.code == "request_timeout", e
        await_idle()


def test_retry_after():
    """A full server: the client waits as it is told, and is served."""
    with serving("--max-requests", "1") as c:
        def ask(c, **more):
            return c.completions.create(
                model=MODEL, prompt="a", extra_body={"ignore_eos": True},
                **more)
        s = ask(c, max_tokens=1000, stream=True)
        next(iter(s))
        e = expect(openai.RateLimitError, 429, lambda: ask(c, max_tokens=1))
        assert e.code == "queue_full"
        assert e.response.headers["retry-after"] == "1"
        threading.Timer(0.7, s.close).start()
        openai_schema.statuses.clear()
        r = ask(c.with_options(max_retries=8), max_tokens=2)
        assert r.usage.completion_tokens == 2
        assert openai_schema.statuses[0] == 429
        assert openai_schema.statuses[-1] == 200


def test_tokens():
    raw = client.with_options(base_url=BASE.removesuffix("/v1"))
    ids = raw.post("/tokenize", cast_to=object,
                   body={"prompt": "In the beginning"})
    r = client.completions.create(model=MODEL, prompt="In the beginning",
                                  max_tokens=1)
    assert ids["count"] == len(ids["tokens"]) == r.usage.prompt_tokens
    back = raw.post("/detokenize", cast_to=object,
                    body={"tokens": ids["tokens"]})
    assert back["prompt"].endswith("In the beginning")


def test_streams_of_many():
    """Usage in every event, in the last, and nowhere; every choice ends once."""
    for options in (None, {"include_usage": True},
                    {"include_usage": True, "continuous_usage_stats": True}):
        more = {"stream_options": options} if options else {}
        ends, usages, nr = {}, 0, 0
        for chunk in client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hi"}],
                n=3, max_tokens=12, seed=4, stream=True,
                extra_body=more):
            nr += 1
            usages += chunk.usage is not None
            for c in chunk.choices:
                if c.finish_reason:
                    assert c.index not in ends
                    ends[c.index] = c.finish_reason
        assert sorted(ends) == [0, 1, 2], ends
        assert usages == (0 if not options else 1 if len(options) == 1 else nr)


def test_many_at_once():
    async def run():
        many = openai.AsyncOpenAI(
            base_url=BASE, api_key=KEY, max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(
                transport=openai_schema.AsyncTransport()))

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
    openai_schema.statuses.clear()
    r = patient.completions.create(model=MODEL, prompt="a", max_tokens=2)
    assert r.usage.completion_tokens == 2
    assert openai_schema.statuses[-1] == 200
    assert set(openai_schema.statuses[:-1]) <= {503}


MODEL = client.models.list().data[0].id
tests = [f for name, f in list(globals().items()) if name.startswith("test_")]
failed = 0
for f in tests:
    openai_schema.faults.clear()
    try:
        f()
        assert not openai_schema.faults, "\n".join(openai_schema.faults[:10])
    except Exception:
        failed += 1
        print(f"FAILED: {f.__name__}")
        traceback.print_exc(limit=4)
print(f"openai {openai.__version__}; judged by schema: " + ", ".join(
    f"{n} {name}" for name, n in sorted(openai_schema.seen.items())))
print(f"{(len(tests) - failed) * 100 // len(tests)}%: Checks: {len(tests)}, "
      f"Failures: {failed}, Errors: 0")
sys.exit(failed != 0)
