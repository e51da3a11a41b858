// SPDX-License-Identifier: Apache-2.0
/*
 * bell.c - wake a thread that sleeps in epoll
 */
#include <kvmm/ring.h>

#include "kvmm/ipc/base/base.h"

void bell_ring(int fd)
{
	u64 one = 1;

	/* It fails only when the count is full: the bell rings already then. */
	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

/* sleeper_wake() - there is work for the thread, which was published before */
void sleeper_wake(struct sleeper *s)
{
	if (ring_sleeper_waits(&s->asleep))
		bell_ring(s->bell);
}
