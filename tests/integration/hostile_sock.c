// SPDX-License-Identifier: Apache-2.0
/*
 * hostile_sock.c - attacks on the daemon's sockets
 *
 * Each attack opens its connections and closes them again, or leaves one among
 * the held ones.  A held connection is closed when its place is needed, so that
 * their number is bounded.  No attack waits for the daemon.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/hostile.h"

#define MUTE_SAME	3	/* of an honest program's user */

/* Leave a connection open for a while. */
static void hold(struct hostile *h, int fd)
{
	int *place = &h->held[h->next_held++ % HOSTILE_HELD];

	if (*place >= 0)
		close(*place);
	*place = fd;
}

static int hello(struct hostile *h)
{
	return wire_connect(h->attach, SOCK_SEQPACKET);
}

static bool say(int s, const void *buf, size_t len)
{
	return s >= 0 && send(s, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static bool sock_hello_none(struct hostile *h)
{
	u32 nr = 1 + hostile_below(h, 16), i;
	int s = -1;

	for (i = 0; i < nr; i++) {
		s = hello(h);
		if (s >= 0)
			close(s);
	}
	return s >= 0;
}

static bool sock_hello_cut(struct hostile *h)
{
	char buf[2 * sizeof(struct kvmm_attach_req)];
	size_t len = hostile_below(h, sizeof(buf));
	struct kvmm_attach_req req;
	int s = hello(h);
	bool did;

	if (len == sizeof(req))
		len--;
	wire_request(&req, "hostile-cut");
	memset(buf, 0, sizeof(buf));
	memcpy(buf, &req, sizeof(req));
	did = say(s, buf, len);
	if (s >= 0)
		close(s);
	return did;
}

/*
 * A process that attached and hung up has to end, or the daemon kills it: so
 * the attack runs in a child.
 */
static bool in_child(struct hostile *h, bool (*fn)(struct hostile *h))
{
	u64 seed = (u64)hostile_below(h, UINT32_MAX) << 32 |
		   hostile_below(h, UINT32_MAX);
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return false;
	if (pid)
		return waitpid(pid, &status, 0) == pid && !status;
	h->rng = seed;
	_exit(!fn(h));
}

static bool child_hello_wrong(struct hostile *h)
{
	struct kvmm_attach_req req;
	size_t at = hostile_below(h, sizeof(req));
	int s = hello(h);
	bool did;

	wire_request(&req, "hostile-wrong");
	switch (hostile_below(h, 4)) {
	case 0:
		req.abi_version = hostile_below(h, 1000) + 2;
		break;
	case 1:
		req.layout_hash ^= 1ull << hostile_below(h, 64);
		break;
	case 2:
		memset(req.domain, 'x', sizeof(req.domain));
		break;
	default:
		hostile_fill(h, (char *)&req + at,
			     min(sizeof(req) - at, (size_t)8));
		break;
	}
	did = say(s, &req, sizeof(req));
	/* The daemon may or may not answer in that time. */
	nap_ms(hostile_below(h, 3));
	if (s >= 0)
		close(s);
	return did;
}

static bool sock_hello_wrong(struct hostile *h)
{
	return in_child(h, child_hello_wrong);
}

static bool sock_hello_random(struct hostile *h)
{
	struct kvmm_attach_req req;
	int s = hello(h);
	bool did;

	hostile_fill(h, &req, sizeof(req));
	if (hostile_below(h, 2))
		req.magic = KVMM_ATTACH_MAGIC;
	did = say(s, &req, sizeof(req));
	if (s >= 0)
		close(s);
	return did;
}

/* Attach, and hang up before, during or after the answer. */
static bool child_hello_gone(struct hostile *h)
{
	struct kvmm_attach_req req;
	int s = hello(h);
	bool did;

	wire_request(&req, "hostile-gone");
	did = say(s, &req, sizeof(req));
	if (s < 0)
		return false;
	if (hostile_below(h, 2))
		shutdown(s, hostile_below(h, 2) ? SHUT_RD : SHUT_WR);
	nap_ms(hostile_below(h, 4));
	close(s);
	return did;
}

static bool sock_hello_gone(struct hostile *h)
{
	return in_child(h, child_hello_gone);
}

/* Open the most that one user may have, or few if an honest program has to attach. */
static bool sock_hello_mute(struct hostile *h)
{
	u32 nr = h->uid ? 10 : MUTE_SAME, i;
	int s[10], ok = 0;

	for (i = 0; i < nr; i++) {
		s[i] = hello(h);
		ok += s[i] >= 0;
	}
	nap_ms(hostile_below(h, 10));
	for (i = 0; i < nr; i++)
		if (s[i] >= 0)
			close(s[i]);
	return ok > 0;
}

/* ---- descriptors ---- */

/* Send up to 253 descriptors, a few times; EPERM: the kernel refuses them. */
static bool flood(struct hostile *h, int s, const void *buf, size_t len)
{
	int fds[KVMM_MAP_BATCH], one = eventfd(0, EFD_CLOEXEC), err = 0;
	u32 nr = hostile_below(h, 2) ? KVMM_MAP_BATCH :
		 1 + hostile_below(h, 20), i;

	for (i = 0; i < nr; i++)
		fds[i] = one;
	if (s < 0 || one < 0)
		return false;
	for (i = 0; i < 1 + hostile_below(h, 5) && !err; i++)
		err = wire_send(s, buf, len, fds, nr);
	close(one);
	if (hostile_below(h, 2))
		nap_ms(hostile_below(h, 4));
	close(s);
	return i > 1 || !err || err == -EPERM;
}

static bool sock_fds_attach(struct hostile *h)
{
	struct kvmm_attach_req req;

	wire_request(&req, "hostile-fds");
	return flood(h, hello(h), &req, hostile_below(h, 2) ? sizeof(req) : 1);
}

static bool sock_fds_view(struct hostile *h)
{
	return flood(h, wire_connect(h->view, SOCK_STREAM), "cat meminfo\n",
		     hostile_below(h, 2) ? 12 : 4);
}

static bool sock_fds_admin(struct hostile *h)
{
	return flood(h, wire_connect(h->admin, SOCK_SEQPACKET),
		     "swapon 0 0 0 /nowhere", hostile_below(h, 2) ? 21 : 4);
}

/*
 * One end of a TCP connection with data under way and SO_LINGER, so that its
 * last close waits until the data have arrived.  The other end, *@peer, never
 * reads.
 */
static int lingering(int *peer)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct linger linger = { .l_onoff = 1, .l_linger = 60 };
	socklen_t len = sizeof(sin);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 1;
	static char junk[4096];

	*peer = -1;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	if (l >= 0 && s >= 0 &&
	    !bind(l, (struct sockaddr *)&sin, sizeof(sin)) && !listen(l, 1) &&
	    !getsockname(l, (struct sockaddr *)&sin, &len) &&
	    !connect(s, (struct sockaddr *)&sin, sizeof(sin)))
		*peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	if (l >= 0)
		close(l);
	if (*peer >= 0 && !setsockopt(s, SOL_SOCKET, SO_LINGER, &linger,
				      sizeof(linger))) {
		while (send(s, junk, sizeof(junk), MSG_DONTWAIT) > 0)
			;
		return s;
	}
	if (s >= 0)
		close(s);
	return -1;
}

/*
 * The daemon has to be the last to close it: this process closes its copy
 * before the child sends, and a process that exits does not linger.
 */
static bool sock_fds_linger(struct hostile *h)
{
	struct kvmm_attach_req req;
	int peer, fd = lingering(&peer), go[2], status, err;
	pid_t pid;
	char c;

	if (fd < 0 || pipe(go))
		return false;
	pid = fork();
	if (!pid) {
		int s = hello(h);

		close(go[1]);
		wire_request(&req, "hostile-linger");
		err = read(go[0], &c, 1) < 0 ? -errno :
		      wire_send(s, &req, sizeof(req), &fd, 1);
		_exit(err && err != -EPERM);
	}
	close(fd);
	close(go[0]);
	close(go[1]);
	hold(h, peer);
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

void hostile_burst(struct rig *r, int peer[HOSTILE_BURST])
{
	char path[RIG_PATH + 32], c;
	int fd[HOSTILE_BURST], go[2], status, i;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/attach.sock", r->dir);
	ck_assert_int_eq(pipe(go), 0);
	for (i = 0; i < HOSTILE_BURST; i++) {
		fd[i] = lingering(&peer[i]);
		ck_assert_int_ge(fd[i], 0);
	}
	pid = fork();
	if (!pid) {
		close(go[1]);
		status = read(go[0], &c, 1) < 0;
		for (i = 0; i < HOSTILE_BURST; i++)
			status |= wire_send(wire_connect(path, SOCK_SEQPACKET),
					    "x", 1, &fd[i], 1) != 0;
		_exit(status);
	}
	ck_assert_int_gt(pid, 0);
	for (i = 0; i < HOSTILE_BURST; i++)
		close(fd[i]);
	close(go[0]);
	close(go[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

/* ---- the sockets of the daemon's own user ---- */

static bool sock_view_random(struct hostile *h)
{
	char buf[6000];
	int s = wire_connect(h->view, SOCK_STREAM);
	bool did;

	hostile_fill(h, buf, sizeof(buf));
	if (hostile_below(h, 2))
		memcpy(buf, "cat ../../../etc/passwd\n", 24);
	did = say(s, buf, 1 + hostile_below(h, sizeof(buf)));
	if (s >= 0)
		close(s);
	return did;
}

static bool sock_view_unread(struct hostile *h)
{
	static const char *const asks[] = {
		"cat vmstat\n", "cat extentinfo\n", "cat prefixcache\n",
		"cat clients\n", "ls /\n",
	};
	const char *ask = asks[hostile_below(h, ARRAY_SIZE(asks))];
	int s = wire_connect(h->view, SOCK_STREAM), small = 1;
	bool did;

	if (s < 0)
		return false;
	setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	did = say(s, ask, strlen(ask));
	hold(h, s);
	return did;
}

static bool sock_view_half(struct hostile *h)
{
	int s = wire_connect(h->view, SOCK_STREAM);
	bool did = say(s, "cat mem", 1 + hostile_below(h, 7));

	if (s >= 0)
		hold(h, s);
	return did;
}

static bool sock_admin_random(struct hostile *h)
{
	static const char *const asks[] = {
		"swapon", "swapon 18446744073709551616 0 0 x", "swapoff 0 0 0 ",
		"swapon 0 99999999999 7 /dev/null", "swapoff 1 2 3 /none",
	};
	const char *ask = asks[hostile_below(h, ARRAY_SIZE(asks))];
	char buf[5000];
	int s = wire_connect(h->admin, SOCK_SEQPACKET);
	bool did;

	hostile_fill(h, buf, sizeof(buf));
	if (hostile_below(h, 2))
		did = say(s, ask, strlen(ask));
	else
		did = say(s, buf, hostile_below(h, sizeof(buf)));
	if (hostile_below(h, 2))
		nap_ms(2);
	if (s >= 0)
		close(s);
	return did;
}

static bool sock_foreign(struct hostile *h)
{
	int v = wire_connect(h->view, SOCK_STREAM);
	int a = wire_connect(h->admin, SOCK_SEQPACKET);

	if (v >= 0 || a >= 0)
		hostile_breach(h, "another user connected to the view or the admin socket");
	if (v >= 0)
		close(v);
	if (a >= 0)
		close(a);
	return v < 0 && a < 0;
}

static bool (*const attacks[])(struct hostile *h) = {
#define x(name, words)	[HOSTILE_##name] = sock_##name,
	HOSTILE_OWN(x)
	HOSTILE_SOCK(x)
	HOSTILE_FOREIGN(x)
#undef x
};

void hostile_sock_attack(struct hostile *h)
{
	const u32 shared = HOSTILE_NR_RING + HOSTILE_NR_OWN;
	u32 i = h->uid ? hostile_draw(h, shared, HOSTILE_NR_SOCK +
				      HOSTILE_NR_FOREIGN) :
			 hostile_draw(h, HOSTILE_NR_RING, HOSTILE_NR_OWN +
				      HOSTILE_NR_SOCK);

	if (attacks[i](h))
		hostile_count(h, i);
}
