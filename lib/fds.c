// SPDX-License-Identifier: Apache-2.0
/*
 * fds.c - descriptors of a received message
 */
#include <unistd.h>

#include <kvmm/fds.h>

int kv_fds_first(struct msghdr *msg)
{
	struct cmsghdr *cm;
	int first = -1, fd;
	size_t n, i;

	for (cm = CMSG_FIRSTHDR(msg); cm; cm = CMSG_NXTHDR(msg, cm)) {
		if (cm->cmsg_level != SOL_SOCKET ||
		    cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int),
			       sizeof(fd));
			if (first < 0)
				first = fd;
			else
				close(fd);
		}
	}
	return first;
}
