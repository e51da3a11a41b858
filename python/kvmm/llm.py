# SPDX-License-Identifier: Apache-2.0
"""Offline generation: kvrt serve as a child, with vLLM's calls."""
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from ._server import Call, Server
from .outputs import request_of
from .params import SamplingParams

AT_ONCE = 256   # requests; kvrt serve has a queue of 512


class LLM:
    """A model, served by a child.

    model:        a model folder, or hf:ORG/NAME of the Hugging Face cache
    pool_size, extent_size: of a private daemon, which is started if none answers
    start_timeout: seconds to load; timeout: longest time of a request, None: any
    Other options are those of kvrt serve, with _ for -: dtype, max_model_len, threads,
    mode, memory_max, socket ...
    """

    def __init__(self, model, **options):
        self._server = Server(model, **options)
        self._end = weakref.finalize(self, self._server.close)
        self._decoded = {}
        self._lock = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the children.  The end of the object or of the process does the same."""
        self._end()

    # ---- vLLM's calls ----

    def generate(self, prompts, sampling_params=None, *, use_tqdm=False, lora_request=None,
                 priority=None):
        """Complete prompts: texts, lists of token ids, or dicts with one of both.

        sampling_params: one for all, or a list with one for each.  None: the model's own
        defaults.  Return: a RequestOutput for each prompt, in their order.
        """
        if lora_request is not None:
            raise ValueError("lora_request is not served by kvrt")
        return self._many("/v1/completions", prompts_of(prompts), sampling_params, priority, {})

    def chat(self, messages, sampling_params=None, *, use_tqdm=False, lora_request=None,
             chat_template=None, add_generation_prompt=True, continue_final_message=False,
             tools=None, chat_template_kwargs=None):
        """Answer a chat, a list of messages, or each of a list of chats."""
        for name, value in (("lora_request", lora_request), ("chat_template", chat_template),
                            ("continue_final_message", continue_final_message or None),
                            ("tools", tools or None)):
            if value is not None:
                raise ValueError(f"{name} is not served by kvrt"
                                 + (": give it to LLM()" if name == "chat_template" else ""))
        chats = [messages] if messages and isinstance(messages[0], dict) else list(messages)
        more = {} if add_generation_prompt else {"add_generation_prompt": False}
        if chat_template_kwargs:
            more["chat_template_kwargs"] = chat_template_kwargs
        return self._many("/v1/chat/completions", [("messages", c) for c in chats],
                          sampling_params, None, more)

    # ---- requests ----

    def _many(self, path, prompts, params, priority, more):
        nr = len(prompts)
        params = list(params) if isinstance(params, (list, tuple)) else [params] * nr
        priority = [priority] * nr if priority is None or isinstance(priority, int) else priority
        if len(params) != nr or len(priority) != nr:
            raise ValueError(f"{nr} prompts, {len(params)} sampling_params, {len(priority)} "
                             "priorities: give as many of each")
        bodies = [self._body(path, *p, s, n, more) for p, s, n in zip(prompts, params, priority)]
        answers = self._ask([Call(self._server, "POST", path, b) for b in bodies])
        chat = path.endswith("chat/completions")
        return [request_of(a, p[1] if isinstance(p[1], str) else None, chat,
                           (s and s.logprobs) or 0, self._decode)
                for a, p, s in zip(answers, prompts, params)]

    def _ask(self, calls):
        """The answers of all calls.  If one fails, or Ctrl-C comes, all are given up."""
        with ThreadPoolExecutor(max(1, min(len(calls), AT_ONCE))) as pool:
            try:
                return list(pool.map(Call.run, calls))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for call in calls:
                    call.stop()
                raise

    def _body(self, path, key, value, params, priority, more):
        body = {key: value, "return_token_ids": True, **more}
        if priority is not None:
            body["priority"] = priority
        if params is None:
            return body
        if not isinstance(params, SamplingParams):
            raise TypeError("sampling_params are SamplingParams")
        body.update(params.fields(key == "messages"))
        most = params.max_tokens if params.max_tokens is not None else self._room(key, value)
        if most is not None:
            body["max_tokens"] = most
        return body

    def _room(self, key, value):
        """Tokens that fit behind a prompt; None: the server knows by itself."""
        if key == "messages":
            return None
        if isinstance(value, str):
            got = self._server.request("/tokenize", {"prompt": value})
            return got["max_model_len"] - got["count"]
        got = self._server.request("/tokenize", {"prompt": ""})
        return got["max_model_len"] - len(value)

    def _decode(self, token):
        """The text of a token, asked for once."""
        with self._lock:
            if token not in self._decoded:
                got = self._server.request("/detokenize", {"tokens": [token]})
                self._decoded[token] = got["prompt"]
            return self._decoded[token]


def prompts_of(prompts):
    """[("prompt", text or ids)]"""
    if isinstance(prompts, (str, dict)) or (prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    return [("prompt", one_prompt(p)) for p in prompts]


def one_prompt(prompt):
    if isinstance(prompt, dict):
        wrong = set(prompt) - {"prompt", "prompt_token_ids"}
        if wrong:
            raise ValueError(f"a prompt has no field {sorted(wrong)[0]} here")
        prompt = prompt.get("prompt_token_ids") or prompt.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if not prompt or not all(isinstance(i, int) for i in prompt):
        raise ValueError("a prompt is a text, or a list of token ids")
    return list(prompt)
