#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quantizers.py - folders of the quantizers that people use, against their own dequantized numbers

usage: quantizers.py BUILD MODEL TEXT FOLDERS [NAME]...

Quantizes MODEL, a folder of Llama's architecture in Hugging Face format, into FOLDERS/NAME by each
recipe below, on a CPU; TEXT calibrates it.  A folder that is newer than MODEL stays.  The package that
owns the format dequantizes the folder, with the scales taken to f32: compressed-tensors its own
folders, gptqmodel those of GPTQ and AWQ.  transformers runs the numbers in f32, and kvrt runs the folder
(dense.py).  `lm`, `gptq` and `round` before a NAME are llmcompressor, gptqmodel and auto-round.

BUILD is a folder of `make`, of which tests/check_model_golden has been built.  Run it with
OMP_NUM_THREADS=1 on a machine that does other work, too.  All packages fit in one environment:

    pip install llmcompressor==0.14.0.1 gptqmodel==7.6.0 auto-round==0.15.1 gguf==0.19.0 torch==2.13.0

which brings compressed-tensors 0.19.0 and transformers 5.17.0.
"""
import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

# gptqmodel asks for at least two workers, and starts one on machines with few CPUs.
os.cpu_count = lambda: 4

import torch
import transformers
from safetensors.torch import load_file

import dense
from daemon import Daemon

ROWS, LONG = 8, 256


# ---- calibration ----

def windows(model, text):
    ids = dense.encode(model, text[:ROWS * LONG * 8])
    return [ids[i * LONG:(i + 1) * LONG] for i in range(ROWS)]


# ---- quantizers ----

def by_llmcompressor(model, path, rows, modifier, **settings):
    import datasets
    import llmcompressor
    from llmcompressor.modifiers import awq, quantization

    if not torch.cuda.is_available():
        torch.Tensor.pin_memory = lambda tensor, *_: tensor     # AWQ pins memory for a GPU
    kind = getattr(quantization, modifier, None) or getattr(awq, modifier)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    data = datasets.Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * LONG] * ROWS})
    more = {} if modifier == "QuantizationModifier" else dict(
        dataset=data, max_seq_length=LONG, num_calibration_samples=ROWS)
    llmcompressor.oneshot(model=loaded, recipe=[kind(targets="Linear", ignore=["lm_head"], **settings)], **more)
    loaded.save_pretrained(path, save_compressed=True)


def by_gptqmodel(model, path, rows, **settings):
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

    more = {"backend": BACKEND.AWQ_TORCH} if settings.get("quant_method") == "awq" else {}
    loaded = GPTQModel.load(str(model), QuantizeConfig(**settings), device="cpu")
    loaded.quantize([dict(input_ids=torch.tensor([row]), attention_mask=torch.ones(1, LONG, dtype=torch.long))
                     for row in rows], batch_size=1, **more)
    loaded.save(str(path))


def by_auto_round(model, path, rows, form, **settings):
    from auto_round import AutoRound

    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    words = transformers.AutoTokenizer.from_pretrained(model)
    rounder = AutoRound(loaded, words, iters=4, nsamples=ROWS, seqlen=LONG, batch_size=1, device_map="cpu",
                        dataset=[torch.tensor([row]) for row in rows], **settings)
    rounder.quantize_and_save(str(path), format=form)
    for below in path.glob("*/config.json"):            # it makes a folder of its own
        for file in below.parent.iterdir():
            file.rename(path / file.name)


def lm(modifier, scheme, **more):
    return by_llmcompressor, dict(modifier=modifier, scheme=scheme, **more)


def gptq(bits, group, **more):
    return by_gptqmodel, dict(dict(bits=bits, group_size=group, desc_act=False), **more)


def rounded(form, **more):
    return by_auto_round, dict(dict(form=form, bits=4, group_size=128), **more)


RECIPES = {
    "lm-gptq-w4a16": lm("GPTQModifier", "W4A16"),
    "lm-gptq-w4a16-plain": lm("GPTQModifier", "W4A16", actorder=None),
    "lm-gptq-w4a16-asym": lm("GPTQModifier", "W4A16_ASYM"),
    "lm-awq-w4a16": lm("AWQModifier", "W4A16"),
    "lm-awq-w4a16-asym": lm("AWQModifier", "W4A16_ASYM"),
    "lm-gptq-w8a16": lm("GPTQModifier", "W8A16"),
    "lm-gptq-w8a8": lm("GPTQModifier", "W8A8"),
    "lm-fp8": lm("QuantizationModifier", "FP8_DYNAMIC"),
    "lm-fp8-block": lm("QuantizationModifier", "FP8_BLOCK"),
    "gptq-4": gptq(4, 128),
    "gptq-4-act": gptq(4, 128, desc_act=True),
    "gptq-4-act-asym-32": gptq(4, 32, desc_act=True, sym=False),
    "gptq-4-row": gptq(4, -1, act_group_aware=False),
    "gptq-4-v2": gptq(4, 128, sym=False, format="gptq_v2"),
    "gptq-8": gptq(8, 128),
    "gptq-8-act": gptq(8, 128, desc_act=True),
    "gptq-awq": gptq(4, 128, quant_method="awq", format="gemm"),
    "gptq-awq-asym": gptq(4, 128, quant_method="awq", format="gemm", sym=False),
    "round": rounded("auto_round"),
    "round-gptq": rounded("auto_gptq"),
    "round-awq": rounded("auto_awq", sym=False),
    "round-lm": rounded("llm_compressor"),
}


@contextlib.contextmanager
def chatter():
    """What quantizers print goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def make(model, text, folders, name):
    """FOLDERS/NAME, made unless it is newer than the model."""
    path = folders / name
    mine, source = path / "config.json", model / "model.safetensors"
    if not mine.exists() or mine.stat().st_mtime < source.stat().st_mtime:
        shutil.rmtree(path, ignore_errors=True)
        how, settings = RECIPES[name]
        with chatter():
            how(model, path, windows(model, text), **settings)
        for file in "tokenizer.json", "tokenizer_config.json":
            shutil.copy(model / file, path)
    return path


# ---- their own dequantizers ----

def from_compressed(parts, quant):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    group, = quant["config_groups"].values()
    scheme = QuantizationScheme.model_validate(group)
    parts["weight_scale"] = parts["weight_scale"].float()
    return BaseCompressor.get_value_from_registry(group["format"]).decompress(parts, scheme)["weight"]


def from_gptq(parts, quant):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module

    bits, (words, rows) = quant["bits"], parts["qweight"].shape
    linear = TorchLinear(bits=bits, group_size=quant["group_size"], sym=quant["sym"],
                         desc_act=quant.get("desc_act", False), in_features=words * 32 // bits, out_features=rows)
    linear.load_state_dict(parts, strict=False)
    if quant.get("checkpoint_format", "gptq") == "gptq":
        convert_gptq_v1_to_v2_format_module(linear, bits, torch.int32)
    linear.scales = parts["scales"].float()
    return linear.eval().dequantize_weight().T


def from_awq(parts, quant):
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    return dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].float(), quant["bits"],
                           quant["group_size"]).T


FORMATS = {"compressed-tensors": from_compressed, "gptq": from_gptq, "auto-round": from_gptq, "awq": from_awq}


def dequantize(path):
    """The tensors of the model in a folder, in f32 where they were quantized."""
    quant = json.loads((path / "config.json").read_text())["quantization_config"]
    modules, tensors, to_f32 = {}, {}, FORMATS[quant["quant_method"]]
    for file in path.glob("*.safetensors"):
        for name, value in load_file(file).items():
            module, part = name.rsplit(".", 1)
            modules.setdefault(module, {})[part] = value
    for module, parts in modules.items():
        if "scales" in parts or "weight_scale" in parts:
            with chatter():
                weight = to_f32(parts, quant)
            if weight.dtype != torch.float32:
                raise RuntimeError(f"{module} became {weight.dtype}")
            parts = {"weight": weight.contiguous()}
        tensors.update({f"{module}.{part}": value for part, value in parts.items()})
    return tensors


def main():
    build, model, text, folders = (Path(p).resolve() for p in sys.argv[1:5])
    names = sys.argv[5:] or list(RECIPES)
    folders.mkdir(parents=True, exist_ok=True)
    os.chdir(folders)                                   # some write logs where they run
    config = json.loads((model / "config.json").read_text())
    for name in names:
        make(model, text.read_text(), folders, name)
    with tempfile.TemporaryDirectory(prefix="kvmm-quantizers.") as folder:
        daemon = Daemon(build, Path(folder))
        try:
            table = dense.Table(build, Path(folder), model)
            for name in names:
                path = folders / name
                table.row(name, path, lambda: dense.reference(config, dequantize(path)))
        finally:
            daemon.close()
    sys.exit(not table.end())


if __name__ == "__main__":
    main()
