#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# capacity.sh - the table of first-model.md agrees with kvrt inspect
#
# Each row has the sizes of a model.  The script writes a configuration with them, and
# kvrt inspect computes the rest.  UPDATE=1 writes the rows.
#
# budget: 60 s
. "${BASH_SOURCE%/*}/checks.bash"

cat >"$work/capacity.py" <<'END'
import json, os, subprocess, sys

kvrt, page, work, update = sys.argv[1:5]
lines = open(page).read().split("\n")
bad = rows = 0


def inspect(layers, heads, size, pool):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_act": "silu", "vocab_size": 64, "hidden_size": 64,
        "intermediate_size": 64, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads,
        "head_dim": size, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    }
    with open(work + "/config.json", "w") as f:
        json.dump(config, f)
    out = subprocess.run([kvrt, "inspect", work, "--load-format", "dummy", "--kv-cache-dtype",
                          "bf16", "--backend", "host", "--pool-size", "%dG" % pool, "--json"],
                         stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out)


for i, line in enumerate(lines):
    cells = [c.strip() for c in line.strip("|").split("|")]
    if not line.startswith("| ") or len(cells) < 5 or not cells[1].endswith(" B"):
        continue
    layers, heads, size = map(int, cells[2:5])
    rows += 1
    parts = ["%.1f GiB" % (float(cells[1][:-2]) * 2e9 / 2**30)]
    token = inspect(layers, heads, size, 8)["kv_bytes_per_token"]
    if token != 2 * layers * heads * size * 2:
        print("%s: the formula says something else than %d" % (cells[0], token))
        bad += 1
    parts.append("%g KiB" % (token / 1024))
    for pool in 8, 16, 24, 80:
        # Blocks of 16 tokens; inspect counts in the same way.
        parts.append(str((pool << 30) // (16 * token) * 16))
    said = inspect(layers, heads, size, 80)
    if str(said["pool_blocks"] * said["block_tokens"]) != parts[-1]:
        print("%s: inspect says %s tokens" % (cells[0], said["pool_blocks"] * 16))
        bad += 1
    want = "| " + " | ".join(cells[:5] + parts) + " |"
    if want != line:
        if update != "1":
            print("is:    %s\nwants: %s" % (line, want))
            bad += 1
        lines[i] = want
if update == "1":
    open(page, "w").write("\n".join(lines))
print("%d rows" % rows)
sys.exit(bad != 0 or rows < 20)
END
run python3 "$work/capacity.py" "$KVMM_BUILD/kvrt" "$KVMM_TOP/Documentation/first-model.md" "$work" "${UPDATE:-0}"
check 'the table agrees with kvrt inspect' rc_is 0
checks_done
