# SPDX-License-Identifier: Apache-2.0
"""SamplingParams, with the names of vLLM and those that kvrt serves."""
from dataclasses import asdict, dataclass, fields

# Names of vLLM without a like here, with the value that asks for nothing.
UNSERVED = {
    "detokenize": True, "spaces_between_special_tokens": True, "truncate_prompt_tokens": None,
    "structured_outputs": None, "guided_decoding": None, "logits_processors": None,
    "output_kind": None, "extra_args": None, "thinking_token_budget": None,
    "repetition_detection": None, "flat_logprobs": False, "skip_clone": False,
}
# Fields of a request that are sent only if they are not the default.
RARE = ("best_of", "use_beam_search", "length_penalty", "early_stopping", "min_tokens",
        "bad_words", "allowed_token_ids", "logit_bias", "stop", "stop_token_ids", "seed",
        "include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "prompt_logprobs",
        "logprob_token_ids")
ALWAYS = ("n", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
          "frequency_penalty", "repetition_penalty")


@dataclass
class _Fields:
    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list | None = None
    stop_token_ids: list | None = None
    bad_words: list | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: dict | None = None
    allowed_token_ids: list | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool | str = False


DEFAULTS = {f.name: f.default for f in fields(_Fields)}


class SamplingParams(_Fields):
    """How tokens are drawn.  max_tokens=None: as many as the context has room for."""

    def __init__(self, **given):
        for name, value in given.items():
            if name in DEFAULTS:
                continue
            if name not in UNSERVED:
                raise ValueError(f"SamplingParams: there is no parameter {name}")
            if value is not None and value != UNSERVED[name]:
                raise ValueError(f"SamplingParams: {name} is not served by kvrt")
        super().__init__(**{k: v for k, v in given.items() if k in DEFAULTS})
        if self.n < 1:
            raise ValueError(f"SamplingParams: n is at least 1, not {self.n}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"SamplingParams: max_tokens is at least 1, not {self.max_tokens}")
        self.top_k = max(self.top_k, 0)

    def __repr__(self):
        said = {k: v for k, v in asdict(self).items() if v != DEFAULTS[k]}
        return f"SamplingParams({', '.join(f'{k}={v!r}' for k, v in said.items())})"

    def fields(self, chat):
        """The fields of a request, without max_tokens."""
        out = {name: getattr(self, name) for name in ALWAYS}
        for name in RARE:
            if getattr(self, name) != DEFAULTS[name]:
                out[name] = getattr(self, name)
        if "logit_bias" in out:
            out["logit_bias"] = {str(k): v for k, v in out["logit_bias"].items()}
        if self.logprobs is not None:
            out.update({"logprobs": True, "top_logprobs": self.logprobs} if chat
                       else {"logprobs": self.logprobs})
            out["return_tokens_as_token_ids"] = True
        return out
