/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - how kvctl asks kvrt serve for the sequences of a request
 *
 * kvmm does not know the requests of a server.  So kvrt serve listens at a socket in
 * the abstract namespace whose name has its pid.  The question is one packet, the id
 * of a request.  The answer is one packet of lines: `CLIENT SEQ` for each sequence;
 * `waits` for each prompt without one; or LOOKUP_NONE alone.  A connection of another
 * user than root and the server's own is closed at once.
 */
#ifndef KVMM_LOOKUP_H
#define KVMM_LOOKUP_H

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <kvmm/types.h>

#define LOOKUP_ID_MAX	143u		/* bytes of a request's id */
#define LOOKUP_MAX	65536u		/* bytes of an answer; more lines are left out */
#define LOOKUP_WAITS	"waits\n"
#define LOOKUP_NONE	"none\n"

/* lookup_address() - the socket of the process @pid; returns its length */
static inline socklen_t lookup_address(struct sockaddr_un *sa, int pid)
{
	int n;

	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1,
		     "kvrt/%d/requests", pid);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

#endif /* KVMM_LOOKUP_H */
