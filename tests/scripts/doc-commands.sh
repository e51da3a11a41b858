#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# doc-commands.sh - runs README.md and the tutorial from the first command to the last
#
# It also checks the form of all pages: a block that does not say whether it is run is
# an error.  The commands of the other pages are run by doc-pages.sh.
#
# budget: 60 s
. "${BASH_SOURCE%/*}/checks.bash"
. "${BASH_SOURCE%/*}/doc-commands.bash"

doc_page README.md
doc_page Documentation/tutorial.md
doc_total
checks_done
