// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_set.c - change values while the daemon runs
 *
 * A value has the name of the file that shows it: domain/NAME/memory.min,
 * pool/gpu0/size, sys/vm/swappiness, events/grant/enable.  Sizes may have a unit;
 * `max` lifts a limit.
 */
#include <string.h>
#include <sysexits.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

int cmd_set(struct kvctl *k, char **argv)
{
	char req[KV_ADMIN_REQ];
	bool refused;

	switch (kv_admin_set_request(argv[0], argv[1], req, sizeof(req))) {
	case 0:
		return kvctl_ask_admin(k, req, -1, &refused);
	case -EINVAL:
		if (strstr(argv[0], "sys/vm/") || strstr(argv[0], "events/"))
			pr_err("%s: not a valid number: write decimal digits",
			       argv[1]);
		else
			pr_err("%s: not a valid size: write " KV_SIZE_TEXT "%s",
			       argv[1],
			       strstr(argv[0], "pool/") ? "" : ", or max");
		return EX_USAGE;
	default:
		pr_err("%s: cannot be set: name a file like domain/NAME/memory.max, see kvctl ls domain, pool/gpu0/size, one of sys/vm or of events",
		       argv[0]);
		return EX_USAGE;
	}
}
