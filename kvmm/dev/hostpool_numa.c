// SPDX-License-Identifier: Apache-2.0
/*
 * hostpool_numa.c - the memory node of the host pool
 *
 * A policy is set on the mapping before its first page exists.  On a shared
 * file it belongs to the file, so it does not matter which thread fills it,
 * nor on which CPU.
 *
 * A node that has no room for all of the pool is only preferred: bound to it,
 * filling the rest would end in a kill instead of a slower copy.
 *
 * Context: start-up only.
 */
#include <inttypes.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdio.h>

#include <kvmm/kvmm_options.h>
#include <kvmm/log.h>
#include <kvmm/opts.h>

#include "kvmm/dev/hostpool.h"

#define MASK_BITS	KVMM_NUMA_NODES

static const char * const place_name[] = {
	[HOSTPOOL_AUTO]		= "auto",
	[HOSTPOOL_LOCAL]	= "local",
	[HOSTPOOL_INTERLEAVE]	= "interleave",
};

int hostpool_numa_parse(const char *text, struct hostpool_numa *n)
{
	u64 node;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(place_name); i++) {
		if (strcmp(text, place_name[i]))
			continue;
		*n = (struct hostpool_numa){ .place = i, .node = -1 };
		return 0;
	}
	if (kv_parse_uint(text, &node) || node >= MASK_BITS)
		return -EINVAL;
	*n = (struct hostpool_numa){
		.place = HOSTPOOL_NODE, .node = (int)node,
	};
	return 0;
}

/* May this process take memory from the node? */
static bool node_allowed(int node)
{
	if (numa_available() < 0)
		return node == 0;
	return node <= numa_max_node() &&
	       numa_bitmask_isbitset(numa_all_nodes_ptr, (u32)node);
}

int hostpool_numa_check(const struct hostpool_numa *n)
{
	if (n->place != HOSTPOOL_NODE || node_allowed(n->node))
		return 0;
	pr_err("--host-numa %d: there is no such memory node, or this process may not use it: give one of /sys/devices/system/node/has_memory, or auto",
	       n->node);
	return -ENODEV;
}

/* Free bytes of @node, in huge or in ordinary pages. */
static u64 node_room(int node, bool huge)
{
	long long room = 0;
	char path[128];
	u64 nr = 0;
	FILE *f;

	if (!huge)
		return numa_node_size64(node, &room) < 0 ? 0 : (u64)room;
	snprintf(path, sizeof(path),
		 "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/free_hugepages",
		 node);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%" SCNu64, &nr) != 1)
		nr = 0;
	fclose(f);
	return nr * HOSTPOOL_HUGE;
}

/* The node of the CPU that runs this thread, or another one that has memory. */
static int node_local(void)
{
	int i, cpu = sched_getcpu();
	int node = cpu < 0 ? -1 : numa_node_of_cpu(cpu);

	if (node >= 0 && node_allowed(node))
		return node;
	for (i = 0; i <= numa_max_node(); i++)
		if (node_allowed(i))
			return i;
	return -1;
}

static void interleave(struct hostpool *hp)
{
	if (mbind(hp->base, hp->mapped, MPOL_INTERLEAVE,
		  numa_all_nodes_ptr->maskp, numa_all_nodes_ptr->size + 1, 0))
		pr_warn("host pool: cannot be spread over the memory nodes: %s: copies may be slower",
			strerror(errno));
}

static void bind_to(struct hostpool *hp, int node)
{
	unsigned long mask[MASK_BITS / (8 * sizeof(long))] = { 0 };
	const u32 bits = 8 * sizeof(mask[0]);
	int mode = MPOL_BIND;

	if (node_room(node, hp->huge) < hp->mapped) {
		mode = MPOL_PREFERRED;
		pr_warn("host pool: node %d has not room for all of it: part of it lies farther from the device: free memory there, or give a smaller --host-size",
			node);
	}
	mask[(u32)node / bits] = 1ul << ((u32)node % bits);
	if (mbind(hp->base, hp->mapped, mode, mask, MASK_BITS, 0)) {
		pr_warn("host pool: cannot be bound to node %d: %s: copies may be slower",
			node, strerror(errno));
		return;
	}
	hp->node = node;
}

void hostpool_numa_bind(struct hostpool *hp, const struct hostpool_ask *ask)
{
	const struct hostpool_numa *n = &ask->numa;
	int node = n->node;

	hp->node = -1;
	if (numa_available() < 0 || numa_num_configured_nodes() < 2) {
		if (n->place != HOSTPOOL_AUTO && !ask->again)
			pr_info("host pool: this machine has one memory node: --host-numa changes nothing");
		return;
	}
	if (n->place == HOSTPOOL_INTERLEAVE) {
		interleave(hp);
		return;
	}
	if (n->place == HOSTPOOL_AUTO)
		node = ask->near;
	if (node < 0 || node >= MASK_BITS)
		node = node_local();
	if (node >= 0)
		bind_to(hp, node);
}
