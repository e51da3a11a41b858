/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_server.h - a child that plays a server of the OpenAI API
 *
 * The listener is made before the fork, so that the port is known.  All
 * requests are kept in a file that both processes can read.
 */
#ifndef TESTS_FAKE_SERVER_H
#define TESTS_FAKE_SERVER_H

#include <arpa/inet.h>
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/types.h>

static char url[64];
static int listener;
static pid_t server;
static FILE *asked;		/* all requests */

static void setup(void)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert(!bind(listener, (struct sockaddr *)&sa, len));
	ck_assert(!listen(listener, 8));
	ck_assert(!getsockname(listener, (struct sockaddr *)&sa, &len));
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", ntohs(sa.sin_port));
	asked = tmpfile();
	ck_assert_ptr_nonnull(asked);
	unsetenv("KVRT_API_KEY");
}

static void teardown(void)
{
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	server = 0;
	close(listener);
	fclose(asked);
}

/* Read a request: its head, and a body that ends with '}'.  Return: false without one. */
static bool serve_read(int fd)
{
	static char buf[65536];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, buf + len, sizeof(buf) - 1 - len)) > 0) {
		len += (size_t)n;
		buf[len] = '\0';
		if (strstr(buf, "\r\n\r\n") &&
		    (!strncmp(buf, "GET", 3) || buf[len - 1] == '}'))
			break;
	}
	fprintf(asked, "%s\n", len ? buf : "");
	fflush(asked);
	return len > 0;
}

#endif /* TESTS_FAKE_SERVER_H */
