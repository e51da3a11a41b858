#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh - .ci/deps on simulated machines of several kinds
#
# The commands that it uses are fakes, in a directory that is the whole PATH.
. "${BASH_SOURCE%/*}/checks.bash"

bin=$work/bin
installed=$work/installed
log=$work/log

# fake NAME: a command whose text comes from standard input
fake()
{
	{ echo '#!/bin/bash'; cat; } >"$bin/$1"
	chmod +x "$bin/$1"
}

fresh()
{
	rm -rf "$bin"
	mkdir -p "$bin"
	for p in sh bash sed dirname grep cat mktemp rm env; do
		ln -s "$(command -v $p)" "$bin/$p"
	done
	printf '# list\nalpha\nbeta  # why\n\n' >"$work/packages"
	printf 'alpha\n' >"$installed"
	: >"$log"
	fake id <<<'echo 0'
	fake dpkg-query <<<"grep -qx \"\${!#}\" '$installed' && echo 'ii '"
	fake apt-get <<<"echo \"\$*\" >>'$log'; case \$* in *install*) echo beta >>'$installed';; esac"
}

deps()
{
	run env PATH="$bin" KVMM_PACKAGES="$work/packages" "$KVMM_TOP/.ci/deps"
}

fresh
echo beta >>"$installed"
deps
check "nothing missing" rc_is 0
check "nothing missing: silent" test -z "$out"
check "nothing missing: apt-get is left alone" test ! -s "$log"

fresh
deps
check "no terminal: installs" rc_is 0
check "no terminal: only what is missing" grep -q 'install .* beta$' "$log"
check "no terminal: not what is there" sh -c "! grep -q alpha '$log'"
check "no terminal: says so" says '^deps: installing: beta$'

fresh
fake apt-get <<<"echo \"\$*\" >>'$log'; case \$* in
*update) : >'$work/lists';; *install*) [ -e '$work/lists' ];; esac"
deps
check "no package lists: updates them" rc_is 0
check "no package lists: then installs again" test "$(grep -c install "$log")" = 2

fresh
fake apt-get <<<'echo "E: no network"; exit 100'
deps
check "no network: status" rc_is 1
check "no network: apt's words" says '^E: no network$'
check "no network: the line to run" last_line_is \
	"apt-get update && apt-get install -y --no-install-recommends beta"

fresh
fake id <<<'echo 1000'
deps
check "neither root nor sudo: status" rc_is 1
check "neither root nor sudo: the line to run" last_line_is \
	"sudo apt-get update && sudo apt-get install -y --no-install-recommends beta"
check "neither root nor sudo: apt-get is left alone" test ! -s "$log"

fresh
fake id <<<'echo 1000'
fake sudo <<<'exit 1'
deps
check "sudo that asks for a password: status" rc_is 1

fresh
fake id <<<'echo 1000'
fake sudo <<<'[ "$1" != -n ] || shift; [ "$1" = true ] && exit; "$@"'
deps
check "sudo: installs" grep -q 'install .* beta$' "$log"

fresh
rm "$bin/dpkg-query"
deps
check "no dpkg: lets the build try" rc_is 0
check "no dpkg: names the packages" says 'alpha beta'

fresh
rm "$work/packages"
deps
check "no list" rc_is 1

# On a terminal .ci/deps asks: script(1) makes a terminal.
answer()
{
	run bash -c "printf '%s\\n' '$1' | script -qec \
		'env PATH=$bin KVMM_PACKAGES=$work/packages $KVMM_TOP/.ci/deps' /dev/null"
}

fresh
answer n
check "terminal: asks" says 'Install them now with apt-get\? \[Y/n\]'
check "terminal: no" rc_is 1
check "terminal: no: apt-get is left alone" test ! -s "$log"
fresh
answer ''
check "terminal: return means yes" rc_is 0
check "terminal: yes: installs" grep -q 'install .* beta$' "$log"

checks_done
