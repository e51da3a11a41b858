"""Make golden.json: beam searches of Hugging Face transformers with the demo model.

usage: python3 make_golden.py [MODEL_DIR] >golden.json

Made with transformers 5.23.0, torch 2.15.0, float32 on the CPU. Prompts are those of the model's golden.json. Some
searches have more ids that end a text than the model's own, words that are common, so that texts end at different
lengths. A text's "ids" are without the one that ended it, which is "stop"; "score" is transformers' sequences_scores:
the sum of logprobs, the end counted, over the length to the power of length_penalty.
"""
import json
import os
import sys

import torch
from transformers import LlamaForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
model_dir = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../demo-model")
model = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
prompts = [c["prompt_ids"] for c in json.load(open(os.path.join(model_dir, "golden.json")))["continuations"]]

COMMON = [0, 14, 16]  # the end of text, "," and "."
CASES = [  # beams, length penalty, early stopping, ids that end, tokens
    (2, 1.0, False, [0], 32),
    (4, 1.0, False, [0, 16], 40),
    (8, 1.0, False, COMMON, 24),
    (4, 1.0, True, COMMON, 40),
    (4, 0.0, "never", [0, 16], 40),
    (4, 2.0, "never", [0, 16], 32),
    (8, -1.0, False, [0, 16], 32),
    (2, 1.0, "never", COMMON, 40),
    (3, 0.6, "never", [0, 16], 40),
    (3, 0.5, True, [0, 16], 32),
]


def texts_of(out, start, stops, most):
    for seq, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        ids, stop = [], None
        for i in seq[start:start + most]:
            if i in stops:
                stop = i
                break
            ids.append(i)
        yield {"ids": ids, "stop": stop, "score": score}


def search(prompt, beams, penalty, early, stops, most):
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=beams, num_return_sequences=beams, do_sample=False,
            temperature=None, top_p=None, length_penalty=penalty, early_stopping=early, eos_token_id=stops,
            pad_token_id=stops[0], max_new_tokens=most, return_dict_in_generate=True, output_scores=True)
    return list(texts_of(out, len(prompt), stops, most))


result = []
for beams, penalty, early, stops, most in CASES:
    for prompt in prompts:
        result.append({
            "prompt": prompt, "beams": beams, "length_penalty": penalty, "early_stopping": early, "stops": stops,
            "max_tokens": most, "texts": search(prompt, beams, penalty, early, stops, most)})
        print(beams, penalty, early, [len(t["ids"]) for t in result[-1]["texts"]], file=sys.stderr, flush=True)
print("[")
print(",\n".join(json.dumps(r, separators=(",", ":")) for r in result))
print("]")
