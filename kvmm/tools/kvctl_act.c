// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_act.c - evict, pin and unpin, drain, log_level
 */
#include <inttypes.h>
#include <stdio.h>
#include <sysexits.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

/* Send the request `VERB NUMBER WHAT`. */
static int act(const struct kvctl *k, const char *verb, u64 number,
	       const char *what)
{
	char req[KV_ADMIN_REQ];
	bool refused;
	int n;

	n = snprintf(req, sizeof(req), "%s %" PRIu64 " %s", verb, number, what);
	if ((size_t)n < sizeof(req))
		return kvctl_ask_admin(k, req, -1, &refused);
	pr_err("%.60s...: the name is too long: see kvctl ls", what);
	return EX_USAGE;
}

/* Parse the size that may follow a domain; 0: there is none. */
static int size_of(const char *s, u64 *bytes)
{
	*bytes = 0;
	if (!s)
		return 0;
	if (!kv_parse_size(s, bytes) && *bytes)
		return 0;
	pr_err("%s: not a valid size: write " KV_SIZE_TEXT, s);
	return EX_USAGE;
}

int cmd_evict(struct kvctl *k, char **argv)
{
	u64 bytes;
	int err = size_of(argv[1], &bytes);

	return err ? err : act(k, "evict", bytes, argv[0]);
}

int cmd_pin(struct kvctl *k, char **argv)
{
	u64 bytes;
	int err = size_of(argv[1], &bytes);

	return err ? err : act(k, "pin", bytes, argv[0]);
}

int cmd_unpin(struct kvctl *k, char **argv)
{
	return act(k, "unpin", 0, argv[0]);
}

int cmd_drain(struct kvctl *k, char **argv)
{
	return act(k, "drain", !k->opts.off, *argv ? *argv : "node");
}

int cmd_log_level(struct kvctl *k, char **argv)
{
	char req[KV_ADMIN_REQ];
	bool refused;

	snprintf(req, sizeof(req), "log %.64s", argv[0]);
	return kvctl_ask_admin(k, req, -1, &refused);
}
