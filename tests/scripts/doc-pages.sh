#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# doc-pages.sh - runs the commands of all other pages of the documentation
#
# doc-commands.sh runs README.md and the tutorial; doc-commands.bash has the rules.  A
# page may be named.  Commands in sentences and tables of the admin guide are run, too.
#
# from: full
# budget: 120 s, full 300 s
. "${BASH_SOURCE%/*}/checks.bash"
. "${BASH_SOURCE%/*}/doc-commands.bash"

for page in "$KVMM_TOP"/Documentation/*.md "$KVMM_TOP"/Documentation/measurements/*.md; do
	page=${page#"$KVMM_TOP/"}
	[ -z "${1-}" ] || [ "$page" = "$1" ] || continue
	[ "$page" != Documentation/tutorial.md ] || continue
	inline=
	[ "$page" != Documentation/admin.md ] || inline=inline
	doc_page "$page" $inline
done
doc_total
checks_done
