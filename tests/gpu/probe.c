// SPDX-License-Identifier: Apache-2.0
/*
 * probe.c - the questions to a GPU and its driver, and their order
 *
 *	make gpu-probe [PART='cost die']
 *
 * The file of each part describes its questions; Documentation/gpu.md says what
 * an answer decides.  The seconds of all parts together are under nine minutes
 * even if each part uses all its time.
 */
#include <string.h>

#include "tests/gpu/probe.h"

static const struct gpu_part parts[] = {
	{ "machine", 10, gpu_machine, "what this is" },
	{ "self", 10, part_self, "processes, sockets, descriptors: no GPU" },
	{ "ceilings", 40, part_ceilings, "memory, bus, launches, products" },
	{ "cost", 40, part_cost, "handles: what each call costs" },
	{ "fresh", 50, part_fresh, "is new memory zero" },
	{ "guard", 30, part_guard, "does a mapping for reading stop a write" },
	{ "die", 20, part_die, "the exporter dies while its memory is used" },
	{ "back", 50, part_back, "a client dies: when is its memory back" },
	{ "park", 30, part_park, "descriptors that no CUDA process holds" },
	{ "wait", 25, part_wait, "words that streams of two processes share" },
	{ "copyshare", 40, part_copyshare, "copies beside another's kernels" },
	{ "turns", 30, part_turns, "processes that decode in turn" },
	{ "layout", 65, part_layout, "the place of blocks in a pool" },
	{ "copies", 45, part_copies, "who copies blocks best" },
	{ "mps", 40, part_mps, "copyshare and turns under MPS" },
	{ 0 }
};

static const struct gpu_program probe = { "probe", parts };

static bool role_run(const struct role_entry *roles, const char *name)
{
	for (; roles->name; roles++) {
		if (!strcmp(roles->name, name)) {
			roles->run(3);
			return true;
		}
	}
	return false;
}

int main(int argc, char **argv)
{
	const char *name;

	if (argc < 2 || strncmp(argv[1], "--role=", 7))
		return gpu_main(&probe, argc, argv);
	name = argv[1] + 7;
	gpu_tiny = argc > 2 && !strcmp(argv[2], "--tiny");
	if (role_run(self_roles, name) || role_run(vmm_roles, name) ||
	    role_run(die_roles, name) || role_run(share_roles, name))
		return 0;
	return 2;
}
