// SPDX-License-Identifier: Apache-2.0
/*
 * notify.c - report the state to a service manager
 *
 * A name that begins with @ is in the abstract namespace.  The manager checks the
 * credentials of the sender, so other processes cannot use the socket.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/notify.h>

static struct sockaddr_un notify_addr;
static socklen_t notify_len;

void kv_notify_init(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;

	notify_len = 0;
	if (n > 1 && n < sizeof(notify_addr.sun_path) &&
	    (*path == '/' || *path == '@')) {
		notify_addr.sun_family = AF_UNIX;
		memcpy(notify_addr.sun_path, path, n + 1);
		if (*path == '@')
			notify_addr.sun_path[0] = '\0';
		notify_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	}
	unsetenv("NOTIFY_SOCKET");
}

int kv_notify(const char *state)
{
	ssize_t n;
	int fd, err;

	if (!notify_len)
		return 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	n = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		   (const struct sockaddr *)&notify_addr, notify_len);
	err = n < 0 ? -errno : 0;
	close(fd);
	return err;
}
