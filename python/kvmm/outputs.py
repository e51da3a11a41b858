# SPDX-License-Identifier: Apache-2.0
"""The answers of LLM.generate() and LLM.chat(), with the names of vLLM."""
from dataclasses import dataclass


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: list
    cumulative_logprob: float | None    # None without SamplingParams(logprobs=)
    logprobs: list | None               # of each token: {token id: Logprob}
    finish_reason: str | None           # "stop" or "length"
    stop_reason: str | int | None = None

    def finished(self):
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    request_id: str
    prompt: str | None                  # None: it was given as ids, or is a chat
    prompt_token_ids: list
    prompt_logprobs: list | None
    outputs: list                       # of CompletionOutput
    finished: bool = True
    num_cached_tokens: int | None = None


def number_of(token):
    """The id in "token_id:N"."""
    return int(token.partition(":")[2])


def rows_of(choice, chat):
    """The logprobs of a choice: for each token (id, logprob, {id: logprob})."""
    got = choice["logprobs"]
    if chat:
        return [(number_of(t["token"]), t["logprob"],
                 {number_of(o["token"]): o["logprob"] for o in t["top_logprobs"]})
                for t in got["content"]]
    tops = got["top_logprobs"] or [{}] * len(got["tokens"])
    return [(number_of(token), value, {number_of(t): v for t, v in (top or {}).items()})
            for token, value, top in zip(got["tokens"], got["token_logprobs"], tops)]


def logprobs_of(rows, nr, decode):
    """@nr: the likeliest tokens that were asked for; the rank of others is not known."""
    out = []
    for token, value, top in rows:
        by_rank = sorted({**top, token: value}.items(), key=lambda pair: -pair[1])
        ranks = {t: i + 1 for i, (t, _) in enumerate(by_rank) if i < nr}
        out.append({t: Logprob(v, ranks.get(t), decode(t)) for t, v in
                    {token: value, **top}.items()})
    return out


def completion_of(index, choice, chat, nr, decode):
    rows = rows_of(choice, chat) if choice["logprobs"] else None
    return CompletionOutput(
        index=index, text=choice["message"]["content"] if chat else choice["text"],
        token_ids=choice["token_ids"],
        cumulative_logprob=sum(r[1] for r in rows) if rows is not None else None,
        logprobs=logprobs_of(rows, nr, decode) if rows is not None else None,
        finish_reason=choice["finish_reason"], stop_reason=choice["stop_reason"])


def prompt_logprobs_of(rows):
    if rows is None:
        return None
    return [row and {int(t): Logprob(**v) for t, v in row.items()} for row in rows]


def request_of(answer, prompt, chat, nr, decode):
    """The RequestOutput of an answer of the server, to one prompt."""
    choices = sorted(answer["choices"], key=lambda c: c["index"])
    first, usage = choices[0], answer["usage"]
    rows = first.get("prompt_logprobs") or answer.get("prompt_logprobs")
    return RequestOutput(
        request_id=answer["id"], prompt=prompt, prompt_token_ids=first["prompt_token_ids"],
        prompt_logprobs=prompt_logprobs_of(rows),
        outputs=[completion_of(i, c, chat, nr, decode) for i, c in enumerate(choices)],
        num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
