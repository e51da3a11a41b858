// SPDX-License-Identifier: Apache-2.0
/*
 * status.c - the state of the server, for a service manager
 *
 * The line is that of the first model which cannot serve, since the start waits
 * for this model.  READY=1 comes again when a daemon came back; a manager takes
 * only the first.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/notify.h>

#include "runtime/server/status.h"

#define STATUS_LEN	1024

bool status_tell(struct backend *b, u32 nr, const char *where)
{
	enum backend_state state = BACKEND_ATTACHED;
	char why[768], text[STATUS_LEN];
	u32 i = 0;

	while (i < nr && (state = backend_get_state(&b[i])) == BACKEND_ATTACHED)
		i++;
	if (i < nr)
		backend_why(&b[i], why, sizeof(why));
	if (i == nr)
		snprintf(text, sizeof(text), "READY=1\nSTATUS=serves %s%s at %s",
			 b[0].o.name, nr > 1 ? " and others" : "", where);
	else if (state == BACKEND_DETACHED)
		snprintf(text, sizeof(text), "STATUS=%s waits for kvmm: %s",
			 b[i].o.name, why);
	else if (state == BACKEND_FAILED)
		snprintf(text, sizeof(text), "ERRNO=%d\nSTATUS=%s: %s",
			 abs(b[i].exit_err), b[i].o.name, why);
	else
		snprintf(text, sizeof(text), "STATUS=%s: %s", b[i].o.name, why);
	(void)kv_notify(text);
	return i == nr;
}
