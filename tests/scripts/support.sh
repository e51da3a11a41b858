#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# support.sh - support.md and CHANGELOG.md agree with the programs
. "${BASH_SOURCE%/*}/checks.bash"

page=$KVMM_TOP/Documentation/support.md
demo=$KVMM_TOP/tests/data/demo-model

# The refusal of a model lists all architectures, most of them without their ending.
mkdir "$work/model"
ln -s "$demo"/* "$work/model"
rm "$work/model/config.json"
sed 's/LlamaForCausalLM/NoSuchForCausalLM/' "$demo/config.json" >"$work/model/config.json"
run "$KVMM_BUILD/kvrt" inspect "$work/model"
check 'another architecture is refused' rc_is 65
names=${out#*use a model of }
tr -d '\n ' <<<"${names%% (ForCausalLM, where*}" | tr ',' '\n' |
	sed -E '/LMHeadModel$/!s/$/ForCausalLM/' | sort -u >"$work/want"
# shellcheck disable=SC2016
grep -oE '`[A-Za-z0-9]+(ForCausalLM|LMHeadModel)`' "$page" | tr -d '`' | sort -u >"$work/have"
run diff "$work/want" "$work/have"
check 'the architectures' rc_is 0
check 'there are some' [ "$(wc -l <"$work/want")" -ge 10 ]

# types OPTION: choices of an option of kvrt serve, but for auto
types()
{
	"$KVMM_BUILD/kvrt" serve --help | sed -nE "s/^  --$1 ([a-z0-9|]+).*/\1/p" | tr '|' '\n' | grep -v auto
}
for option in dtype kv-cache-dtype; do
	row=$(grep -- "\`--$option\` |" "$page")
	for type in $(types $option); do
		run echo "$row"
		check "--$option $type" says "[ (]$type[ ,)]"
	done
done

version=$("$KVMM_BUILD/kvrt" --version)
run grep -m 1 '^## ' "$KVMM_TOP/CHANGELOG.md"
check 'the changelog begins with the version' says "^## ${version#kvrt }(,|$)"
checks_done
