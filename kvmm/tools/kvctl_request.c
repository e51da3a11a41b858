// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_request.c - find the sequences of a request
 *
 * A request is known to the server that works at it, not to kvmm.  So each attached
 * process is asked, at a socket whose name has its pid (include/kvmm/lookup.h).  Any
 * process could take that name, so the kernel is asked which process listens.
 */
#include <string.h>
#include <sys/time.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/lookup.h>

#include "kvmm/tools/kvctl.h"

#define ASK_S	5	/* longest silence of a server */

/* A connection to the process @pid, or -1: it is no server, or not reachable. */
static int server_open(int pid)
{
	const struct timeval wait = { ASK_S, 0 };
	struct sockaddr_un sa;
	const socklen_t len = lookup_address(&sa, pid);
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int fd;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (!connect(fd, (const struct sockaddr *)&sa, len) &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
	    peer.pid == pid) {
		if (!geteuid() || geteuid() == peer.uid)
			return fd;
		pr_warn("the server with pid %d tells of its requests to root and to its own user alone",
			pid);
	}
	close(fd);
	return -1;
}

/* Ask one process for a request.  Return: whether @text has its answer. */
static bool server_ask(int pid, const char *id, char *text)
{
	int fd = server_open(pid);
	ssize_t n = -1;

	if (fd < 0)
		return false;
	if (send(fd, id, strlen(id), MSG_NOSIGNAL) >= 0)
		n = recv(fd, text, LOOKUP_MAX, 0);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Was process number @i of @rows asked before?  It may have several clients. */
static bool asked_before(const json_t *rows, size_t i)
{
	const json_int_t pid = json_integer_value(json_object_get(
				json_array_get(rows, i), "pid"));
	size_t k;

	for (k = 0; k < i; k++)
		if (json_integer_value(json_object_get(json_array_get(rows, k),
						       "pid")) == pid)
			return true;
	return false;
}

bool kvctl_request_find(const json_t *clients, const char *id, char *text)
{
	size_t i;

	for (i = 0; i < json_array_size(clients); i++) {
		const int pid = (int)json_integer_value(json_object_get(
					json_array_get(clients, i), "pid"));

		if (pid <= 0 || asked_before(clients, i) ||
		    !server_ask(pid, id, text))
			continue;
		if (strcmp(text, LOOKUP_NONE))
			return true;
	}
	return false;
}
