# SPDX-License-Identifier: Apache-2.0
"""Conversations, as the variables that a chat template is given."""

USER = {"role": "user", "content": "What is the weather in Paris?"}
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
ANSWER = {"role": "assistant", "content": "It is sunny."}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, \"now\".",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City & country <name>"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"],
                 "default": "celsius"},
        "days": {"type": "integer", "minimum": 0, "maximum": 7.5}},
        "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Sucht im Netz – überall.\nMany lines.",
    "parameters": {"type": "object", "properties": {
        "query": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object", "properties": {
            "lang": {"type": ["string", "null"]},
            "safe": {"type": "boolean"}}}}}}}


def call(name, args, ident="call12345"):
    return {"id": ident, "type": "function",
            "function": {"name": name, "arguments": args}}


def calls(*tool_calls, content=""):
    return {"role": "assistant", "content": content,
            "tool_calls": list(tool_calls)}


def result(content, name="get_weather", ident="call12345"):
    return {"role": "tool", "name": name, "tool_call_id": ident,
            "content": content}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


ONE_CALL = calls(call("get_weather", {"city": "Paris", "days": 1}))
TEXT_CALL = calls(call("get_weather", '{"city": "Paris"}'))

CHATS = {
    "one user message": dict(messages=[USER], add_generation_prompt=True),
    "no prompt for an answer": dict(messages=[USER]),
    "system": dict(messages=[SYSTEM, USER], add_generation_prompt=True),
    "two turns": dict(messages=[SYSTEM, USER, ANSWER,
                                {"role": "user", "content": "And in Rome?"}],
                      add_generation_prompt=True),
    "ends with an answer": dict(messages=[USER, ANSWER]),
    "no message": dict(messages=[], add_generation_prompt=True),
    "empty texts": dict(messages=[{"role": "system", "content": ""},
                                  {"role": "user", "content": ""},
                                  {"role": "assistant", "content": ""},
                                  {"role": "user", "content": "  \n"}],
                        add_generation_prompt=True),
    "unicode": dict(messages=[
        {"role": "system", "content": "Antworte auf Deutsch: äöü ß €"},
        {"role": "user", "content": "日本語 🙂 \u00a0 \u2028 e\u0301 \U0001f469‍👩"},
        {"role": "assistant", "content": "\tназад\\n \"quoted\" <b>&amp;</b>"},
        {"role": "user", "content": "  blanks around\u3000 "}],
        add_generation_prompt=True),
    "parts": dict(messages=[
        {"role": "system", "content": parts("Be brief.")},
        {"role": "user", "content": parts("Hello", " there\n")},
        {"role": "assistant", "content": parts("Yes?")},
        {"role": "user", "content": parts("Nothing.")}],
        add_generation_prompt=True),
    "image": dict(messages=[{"role": "user", "content": [
        {"type": "image"}, {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:,x"}}]}],
        add_generation_prompt=True),
    "tools": dict(messages=[SYSTEM, USER], tools=[WEATHER, SEARCH],
                  add_generation_prompt=True),
    "tools without system": dict(messages=[USER], tools=[WEATHER],
                                 add_generation_prompt=True),
    "tool call and result": dict(
        messages=[SYSTEM, USER, ONE_CALL, result("21.5 °C, sunny")],
        tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "call with text arguments": dict(
        messages=[USER, TEXT_CALL, result('{"temperature": 21.5}'), ANSWER,
                  {"role": "user", "content": "Thanks"}],
        tools=[WEATHER], add_generation_prompt=True),
    "two calls": dict(messages=[USER, calls(
        call("get_weather", {"city": "Paris"}, "aaaaaaaaa"),
        call("search", {"query": "Rom", "tags": ["a", "b"],
                        "filter": {"lang": None, "safe": True}}, "bbbbbbbbb"),
        content="Let me see."),
        result("1", "get_weather", "aaaaaaaaa"),
        result("2", "search", "bbbbbbbbb"), ANSWER],
        tools=[WEATHER, SEARCH]),
    "reasoning": dict(messages=[
        USER, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n42",
               "reasoning_content": "Hm.", "thinking": "Hm."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Well.",
         "thinking": "Well."}]),
    "thinking off": dict(messages=[SYSTEM, USER], add_generation_prompt=True,
                         enable_thinking=False, reasoning_effort="low",
                         thinking=False),
    "thinking on": dict(messages=[USER, ONE_CALL, result("ok")],
                        tools=[SEARCH], add_generation_prompt=True,
                        enable_thinking=True, reasoning_effort="high",
                        thinking=True, date_string="01 Jan 2026"),
    "documents": dict(messages=[USER], add_generation_prompt=True, documents=[
        {"title": "Weather", "text": "It rains."},
        {"title": "Cats & dogs", "text": "Both.", "doc_id": 2}]),
    "roles out of order": dict(messages=[
        USER, USER, {"role": "assistant", "content": None}, ANSWER,
        SYSTEM, USER], add_generation_prompt=True),
    "unknown role": dict(messages=[
        {"role": "developer", "content": "Obey."},
        {"role": "critic", "content": "No."}, USER]),
    "no content": dict(messages=[{"role": "user"}, {"content": "x"}]),
    "empty tools": dict(messages=[SYSTEM, USER, ANSWER, USER], tools=[],
                        add_generation_prompt=True),
}


def variables(chat):
    """With what transformers hands in besides: the tokenizer's tokens."""
    v = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
         "unk_token": "<unk>", "tools": None, "documents": None,
         "add_generation_prompt": False}
    v.update(CHATS[chat])
    return v
