// SPDX-License-Identifier: Apache-2.0
/* foreign.c - options of vllm serve and llama-server, and the way to the same here */
#include "runtime/cli/cli.h"

const struct kv_foreign cli_foreign[CLI_NR_FOREIGN] = {
#define x(_name, _here) { .name = _name, .here = _here },
	CLI_FOREIGN(x)
#undef x
};
