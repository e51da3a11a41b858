// SPDX-License-Identifier: Apache-2.0
/*
 * The daemon against malicious clients: their messages on the socket, their
 * writes into the rings, their use of the memory that they get.  After each
 * test the daemon still serves, its walkers find no fault, and it ends cleanly.
 *
 * budget: 40 s, full 60 s
 */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/unit/ipc_daemon.h"

static struct ipcd d;
static struct rawc r;

static void setup(void)
{
	memset(&r, 0, sizeof(r));
	r.sock = -1;
	ipcd_start(&d, "kvmm", "--pool-size 4M --extent-size 64K --quiet-deadline-ms 60000",
		   NULL);
}

/* The daemon serves, its walkers find no fault, and it ends cleanly. */
static void teardown(void)
{
	struct rawc other;

	rawc_open(&other, &d);
	rawc_put(&other, KVMM_OP_NOP, 0, NULL, 0);
	rawc_publish(&other);
	ck_assert(rawc_wait(&other, 1));
	ipcd_check(&d);
	rawc_close(&other);
	rawc_close(&r);
	ipcd_stop(&d);
}

/* ---- attach ---- */

START_TEST(test_attach)
{
	const struct kvmm_attach_rep *rep = &r.rep;

	rawc_open(&r, &d);
	ck_assert_uint_eq(rep->pool_bytes, 4 << 20);
	ck_assert_uint_eq(rep->extent_size, 64 << 10);
	ck_assert_uint_eq(rep->nr_extents, 64);
	ck_assert_uint_eq(rep->sq_entries, 64);
	ck_assert_uint_ge(rep->cq_entries, rep->sq_entries);
	ck_assert_uint_le(rep->c_bytes, 1 << 20);
	ck_assert_uint_ne(rep->daemon_epoch, 0);
	ck_assert_uint_eq(r.dctl->state, KVMM_CLIENT_ALIVE);
	ck_assert_uint_eq(r.dctl->daemon_epoch, rep->daemon_epoch);
	ck_assert(rep->token[0] || rep->token[1]);
}
END_TEST

static const struct {
	const char *what;
	size_t offset;
	u32 bytes;
	u64 value;
	int status;
} bad_field[] = {
#define F(field, bytes, value, status)					\
	{ #field, offsetof(struct kvmm_attach_req, field), bytes, value, status }
	F(abi_version, 4, 99, -EPROTONOSUPPORT),
	F(layout_hash, 8, 0xbad, -EPROTONOSUPPORT),
	F(flags, 4, KVMM_ATTACH_RESUME, -EOPNOTSUPP),
	F(flags, 4, 0x80, -EINVAL),
	F(shard, 4, 2, 1),
	F(leader, 4, 1, 1),
	F(resv, 4, 1, -EINVAL),
	F(pool, 4, 2, 1),
	F(group[0].kind, 4, 2, -EINVAL),
	F(group[7].kind, 4, 1, -EINVAL),
	F(sq_entries, 4, 3, -EINVAL),
	F(nr_shards, 4, 2, 1),
	F(nr_groups, 4, 2, 1),
	F(block_tokens, 4, 17, 1),
	F(domain[0], 1, 0, 1),
	F(group[0].layers, 4, 0, 1),
	F(group[0].k_bytes, 4, 0xffffffff, 1),
#undef F
};

START_TEST(test_attach_refused)
{
	struct kvmm_attach_req req;
	int status;

	rawc_request(&req);
	memcpy((char *)&req + bad_field[_i].offset, &bad_field[_i].value,
	       bad_field[_i].bytes);
	status = rawc_attach(&r, &d, &req);
	if (bad_field[_i].status < 0)
		ck_assert_int_eq(status, bad_field[_i].status);
	ck_assert_msg(status < 0, "%s", bad_field[_i].what);
	ck_assert_uint_eq(r.rep.abi_version, KVMM_ABI_VERSION);
	ck_assert_msg(memchr(r.rep.text, '\0', sizeof(r.rep.text)) &&
		      strlen(r.rep.text) > 10, "%s says nothing",
		      bad_field[_i].what);
	ck_assert(rawc_hung_up(&r, 2000));
}
END_TEST

START_TEST(test_attach_name_without_end)
{
	struct kvmm_attach_req req;

	rawc_request(&req);
	memset(req.domain, 'x', sizeof(req.domain));
	ck_assert_int_eq(rawc_attach(&r, &d, &req), -EINVAL);
}
END_TEST

/* A wish for a ring size is rounded and limited to the sizes that there are. */
START_TEST(test_attach_ring_size)
{
	static const u32 ask[] = { 0, 1, 16, 1024, 1u << 31 };
	static const u32 get[] = { 256, 16, 16, 1024, 1024 };
	struct kvmm_attach_req req;

	rawc_request(&req);
	req.sq_entries = ask[_i];
	ck_assert_int_eq(rawc_attach(&r, &d, &req), 0);
	ck_assert_uint_eq(r.rep.sq_entries, get[_i]);
}
END_TEST

/* ---- the socket ---- */

START_TEST(test_socket_garbage)
{
	static char junk[4096];
	static const size_t len[] = { 1, 64, 567, 569, 4096, 568 };
	struct rawc bad = { .sock = rawc_connect(&d) };

	struct kvmm_attach_req req;

	/* Only the length is wrong, or every byte is. */
	rawc_request(&req);
	memset(junk, 0xff, sizeof(junk));
	if (_i < 5)
		memcpy(junk, &req, sizeof(req));
	ck_assert_int_ge(bad.sock, 0);
	ck_assert_int_gt(send(bad.sock, junk, len[_i], MSG_NOSIGNAL), 0);
	ck_assert(rawc_hung_up(&bad, 2000));
	rawc_close(&bad);
}
END_TEST

START_TEST(test_socket_gone_at_once)
{
	int i;

	for (i = 0; i < 200; i++) {
		int s = rawc_connect(&d);

		ck_assert_int_ge(s, 0);
		close(s);
	}
}
END_TEST

static void send_fd(int sock, const void *buf, size_t len, int fd, u32 nr)
{
	char control[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = CMSG_SPACE(nr * sizeof(int)),
	};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);
	u32 i;

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(nr * sizeof(int));
	for (i = 0; i < nr; i++)
		memcpy(CMSG_DATA(cm) + i * sizeof(int), &fd, sizeof(int));
	ck_assert_int_eq(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

static void send_fds(int sock, const void *buf, size_t len, u32 nr)
{
	send_fd(sock, buf, len, sock, nr);
}

/* Descriptors with the request, and after it, are refused, and none stays in the daemon. */
START_TEST(test_socket_fds_refused)
{
	struct kvmm_attach_req req;
	struct rawc bad;
	int before, i, tries;

	rawc_open(&r, &d);
	before = ipcd_nr_fds(d.pid);
	rawc_request(&req);
	for (i = 0; i < 20; i++) {
		memset(&bad, 0, sizeof(bad));
		bad.sock = rawc_connect(&d);
		send_fds(bad.sock, &req, sizeof(req), i ? KVMM_MAP_BATCH : 1);
		ck_assert(rawc_hung_up(&bad, 2000));
		rawc_close(&bad);
	}
	for (tries = 0; tries < 200 && ipcd_nr_fds(d.pid) > before; tries++)
		usleep(5000);
	ck_assert_int_le(ipcd_nr_fds(d.pid), before);

	send_fds(r.sock, "x", 1, 3);
	ck_assert(rawc_state(&r, KVMM_CLIENT_EXPELLED));
	ck_assert(rawc_hung_up(&r, 2000));
}
END_TEST

/* A socket whose close waits until the other end reads. */
static int lingering(int *peer)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct linger linger = { .l_onoff = 1, .l_linger = 60 };
	socklen_t len = sizeof(sin);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char junk[4096];

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(l, (struct sockaddr *)&sin, sizeof(sin)), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (struct sockaddr *)&sin, &len), 0);
	ck_assert_int_eq(connect(s, (struct sockaddr *)&sin, sizeof(sin)), 0);
	*peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(*peer, 0);
	close(l);
	while (send(s, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(setsockopt(s, SOL_SOCKET, SO_LINGER, &linger,
				    sizeof(linger)), 0);
	return s;
}

/*
 * Such a socket in a refused message, and behind one: the daemon is the last to
 * close it, and other clients do not wait.
 */
START_TEST(test_socket_fds_linger)
{
	struct kvmm_attach_req req;
	int peer, fd = lingering(&peer), s = rawc_connect(&d), i;

	ck_assert_int_ge(s, 0);
	rawc_request(&req);
	/* The daemon stops meanwhile, so that our descriptor is closed first. */
	kill(d.pid, SIGSTOP);
	if (_i) {
		req.abi_version++;
		ck_assert_int_eq(send(s, &req, sizeof(req), MSG_NOSIGNAL),
				 sizeof(req));
	}
	for (i = 0; i < 3; i++)
		send_fd(s, &req, sizeof(req), fd, 1);
	close(fd);
	close(s);
	kill(d.pid, SIGCONT);
	rawc_open(&r, &d);
	close(peer);
}
END_TEST

START_TEST(test_socket_message_after_attach)
{
	rawc_open(&r, &d);
	ck_assert_int_eq(send(r.sock, "hello", 5, MSG_NOSIGNAL), 5);
	ck_assert(rawc_state(&r, KVMM_CLIENT_EXPELLED));
	ck_assert_int_eq(r.dctl->reason, -EPROTO);
	ck_assert(rawc_hung_up(&r, 2000));
}
END_TEST

/*
 * Nine connections of one user that do not attach are one too many: the daemon
 * closes the oldest, so that another client can attach.
 */
START_TEST(test_socket_greeting_limit)
{
	struct kvmm_attach_req req;
	struct rawc c[9];
	int i;

	for (i = 0; i < 9; i++) {
		memset(&c[i], 0, sizeof(c[i]));
		c[i].sock = rawc_connect(&d);
	}
	ck_assert(rawc_hung_up(&c[0], 1000));
	for (i = 1; i < 9; i++)
		ck_assert(!rawc_hung_up(&c[i], 0));
	rawc_request(&req);
	ck_assert_int_eq(rawc_attach(&r, &d, &req), 0);
	ck_assert(rawc_hung_up(&c[1], 1000));
	ck_assert(!rawc_hung_up(&c[8], 0));
	/* The daemon closes the others a short time later. */
	for (i = 2; i < 9; i++)
		ck_assert(rawc_hung_up(&c[i], 4000));
	for (i = 0; i < 9; i++)
		rawc_close(&c[i]);
}
END_TEST

/* ---- the memory ---- */

START_TEST(test_memory_seals)
{
	size_t cb, db;
	void *p;

	rawc_open(&r, &d);
	cb = r.rep.c_bytes;
	db = r.rep.d_bytes;
	ck_assert_int_ne(ftruncate(r.fd[0], 0), 0);
	ck_assert_int_ne(ftruncate(r.fd[0], (off_t)cb * 2), 0);
	ck_assert_int_ne(ftruncate(r.fd[1], 0), 0);
	ck_assert_int_ne(ftruncate(r.fd[1], (off_t)db * 2), 0);
	ck_assert_int_ne(fcntl(r.fd[0], F_ADD_SEALS, F_SEAL_WRITE), 0);

	p = mmap(NULL, db, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd[1], 0);
	ck_assert_ptr_eq(p, MAP_FAILED);
	ck_assert_int_ne(mprotect((void *)r.d, db, PROT_READ | PROT_WRITE), 0);
	ck_assert_int_lt(pwrite(r.fd[1], "x", 1, 0), 0);
	ck_assert_int_ne(fallocate(r.fd[1], FALLOC_FL_PUNCH_HOLE |
				   FALLOC_FL_KEEP_SIZE, 0, (off_t)db), 0);
}
END_TEST

/* All of segment C becomes zeros while the daemon reads it. */
START_TEST(test_memory_hole_in_c)
{
	rawc_open(&r, &d);
	rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
	rawc_publish(&r);
	ck_assert(rawc_wait(&r, 1));
	ck_assert_int_eq(fallocate(r.fd[0], FALLOC_FL_PUNCH_HOLE |
				   FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)r.rep.c_bytes), 0);
	/* For the daemon, the client's tail went backwards. */
	ck_assert(rawc_state(&r, KVMM_CLIENT_EXPELLED));
}
END_TEST

START_TEST(test_memory_eventfd_full)
{
	u64 most = UINT64_MAX - 1;

	rawc_open(&r, &d);
	ck_assert_int_eq(write(r.fd[2], &most, sizeof(most)), 8);
	rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
	store_release(&r.ctl->sq_tail, 1);
	ck_assert(rawc_wait(&r, 1));
}
END_TEST

/* ---- the rings ---- */

START_TEST(test_ring_nop)
{
	u32 i;

	rawc_open(&r, &d);
	for (i = 0; i < 1000; i++) {
		const struct kvmm_cqe *q = rawc_cqe(&r, i);

		rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
		rawc_publish(&r);
		ck_assert(rawc_wait(&r, i + 1));
		ck_assert_uint_eq(q->number, i + 1);
		ck_assert_uint_eq(q->user_data, ~(u64)(i + 1));
		ck_assert_int_eq(q->status, 0);
		ck_assert_uint_eq(r.dctl->committed, i + 1);
		store_release(&r.ctl->cq_head, i + 1);
	}
}
END_TEST

static void forge(int how)
{
	struct kvmm_sqe *q;
	u32 i;

	switch (how) {
	case 0:
		/* Each entry is valid, but there are too many. */
		for (i = 0; i < r.rep.sq_entries; i++)
			rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
		r.number++;
		break;
	case 1:
		r.ctl->sq_tail = 0xffffffff;
		return;
	case 2:
		r.ctl->cq_head = 1;
		return;
	case 3:
		r.ctl->cq_head = 0x80000000;
		return;
	case 4:
		q = rawc_put(&r, KVMM_OP_SEQ_CLOSE, 1, NULL, 0);
		q->arg_off = r.rep.arg_bytes - 8;
		q->arg_len = 16;
		break;
	case 5:
		q = rawc_put(&r, KVMM_OP_SEQ_CLOSE, 1, NULL, 0);
		q->arg_off = 0xfffffff8;
		q->arg_len = 16;
		break;
	case 6:
		q = rawc_put(&r, KVMM_OP_SEQ_CLOSE, 1, NULL, 0);
		q->arg_len = 0xffffffff;
		break;
	case 7:
		q = rawc_put(&r, KVMM_OP_SEQ_CLOSE, 1, NULL, 0);
		q->arg_off = 4;
		q->arg_len = 8;
		break;
	case 8:
		q = rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
		q->number = 0;
		break;
	}
	rawc_publish(&r);
}
#define NR_FORGERIES 9

START_TEST(test_ring_forged)
{
	rawc_open(&r, &d);
	forge(_i);
	ck_assert(rawc_state(&r, KVMM_CLIENT_EXPELLED));
	ck_assert_int_eq(r.dctl->reason, -EPROTO);
	ck_assert(rawc_hung_up(&r, 2000));
	/* No request was executed. */
	ck_assert_uint_eq(r.dctl->cq_tail, 0);
	ck_assert_uint_eq(r.dctl->committed, 0);
	ck_assert_int_ge(ipcd_number(&d, "vmstat", "client_eproto"), 1);
}
END_TEST

/* Each request is refused as malformed, with a completion, and the client stays. */
START_TEST(test_ring_refused)
{
	static const struct kvmm_sqe bad[] = {
		{ .op = KVMM_NR_OPS },
		{ .op = 0xffff },
		{ .op = KVMM_OP_NOP, .flags = 1 },
		{ .op = KVMM_OP_NOP, .resv = 1 },
		{ .op = KVMM_OP_NOP, .nr = 1 },
		{ .op = KVMM_OP_NOP, .arg_len = 8 },
		{ .op = KVMM_OP_NOP, .step = 1 },
		{ .op = KVMM_OP_NOP, .param = { 1, 0 } },
		{ .op = KVMM_OP_SEQ_OPEN, .nr = 1 },
		{ .op = KVMM_OP_SEQ_OPEN, .nr = 0xffffffff, .arg_len = 32 },
		{ .op = KVMM_OP_STEP_BEGIN, .nr = 1, .step = 1 },
		{ .op = KVMM_OP_SEQ_MATCH, .nr = 1, .arg_len = 24 + 3 },
	};
	u32 i;

	rawc_open(&r, &d);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct kvmm_sqe *q = rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
		u64 number = q->number;

		*q = bad[i];
		q->number = number;
		rawc_publish(&r);
		ck_assert(rawc_wait(&r, i + 1));
		ck_assert_int_lt(rawc_cqe(&r, i)->status, 0);
		ck_assert_uint_eq(rawc_cqe(&r, i)->nr, 0);
		ck_assert_uint_eq(rawc_cqe(&r, i)->number, number);
	}
	ck_assert_uint_eq(r.dctl->state, KVMM_CLIENT_ALIVE);
}
END_TEST

/*
 * A client that reads no answers is served until its completions are full, and
 * not further; it delays no other client, and is served again when it reads.
 */
START_TEST(test_ring_cq_full)
{
	struct rawc other;
	u32 i, full;

	rawc_open(&r, &d);
	full = r.rep.cq_entries;
	for (i = 0; i < full + 20; i++) {
		if (i >= r.rep.sq_entries)
			ck_assert(rawc_wait(&r, i + 1 - r.rep.sq_entries));
		rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
		rawc_publish(&r);
	}
	ck_assert(rawc_wait(&r, full));
	usleep(50000);
	ck_assert_uint_eq(load_acquire(&r.dctl->cq_tail), full);
	ck_assert_uint_eq(rawc_cqe(&r, 0)->number, 1);

	rawc_open(&other, &d);
	rawc_put(&other, KVMM_OP_NOP, 0, NULL, 0);
	rawc_publish(&other);
	ck_assert(rawc_wait(&other, 1));
	rawc_close(&other);

	store_release(&r.ctl->cq_head, full);
	ck_assert(rawc_wait(&r, full + 20));
	ck_assert_uint_eq(rawc_cqe(&r, full + 19)->number, full + 20);
}
END_TEST

/* The same with the result area: an answer has 1000 records. */
START_TEST(test_ring_results_full)
{
	static struct kvmm_seq_arg args[1000];
	const struct kvmm_seq_res *res;
	u32 i, got, most, n = 60;

	rawc_open(&r, &d);
	for (i = 0; i < n; i++)
		rawc_put(&r, KVMM_OP_SEQ_CLOSE, 1000, args, sizeof(args));
	rawc_publish(&r);
	usleep(100000);
	got = load_acquire(&r.dctl->cq_tail);
	most = r.rep.result_bytes / (1000 * (u32)sizeof(*res));
	ck_assert_uint_ge(got, 1);
	ck_assert_uint_le(got, most);
	/* No answer overlaps an earlier one that the client has not consumed. */
	for (i = 1; i < got; i++)
		ck_assert_uint_ge(rawc_cqe(&r, i)->result_off,
				  rawc_cqe(&r, i - 1)->result_off + 8000);
	for (i = 0; i < n; i++) {
		ck_assert(rawc_wait(&r, i + 1));
		ck_assert_int_eq(rawc_cqe(&r, i)->status, 0);
		ck_assert_uint_eq(rawc_cqe(&r, i)->nr, 1000);
		ck_assert_uint_le(rawc_cqe(&r, i)->result_off + 8000,
				  r.rep.result_bytes);
		res = (const struct kvmm_seq_res *)
			(r.d + r.rep.result_off + rawc_cqe(&r, i)->result_off);
		ck_assert_int_eq(res[0].status, -ENOENT);
		ck_assert_int_eq(res[999].status, -ENOENT);
		/* One answer stays, so that the area is never empty and wraps. */
		store_release(&r.ctl->cq_head, i);
	}
}
END_TEST

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/*
 * The daemon sleeps; a doorbell wakes it long before its next tick, which is
 * 5 ms away on average.
 */
static double doorbell_median(u32 *number)
{
	double us[15];
	u32 i;

	for (i = 0; i < 15; i++) {
		usleep(15000 + i * 3700 % 10000);
		us[i] = now_us();
		rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
		rawc_publish(&r);
		ck_assert(rawc_wait(&r, ++*number));
		us[i] = now_us() - us[i];
		store_release(&r.ctl->cq_head, *number);
	}
	qsort(us, 15, sizeof(us[0]), by_value);
	return us[7];
}

START_TEST(test_ring_doorbell)
{
	u32 number = 0, tries;
	double us = 0;

	rawc_open(&r, &d);
	/* A lost doorbell costs half a tick, 5 ms, every time; load does not. */
	for (tries = 0; tries < 12; tries++) {
		us = doorbell_median(&number);
		if (us < 2500)
			return;
	}
	ck_abort_msg("%.0f us at best", us);
}
END_TEST

/* No client is attached, and the next tick is a second away: views are answered at once. */
START_TEST(test_idle_daemon_answers)
{
	double us;
	int i;

	usleep(50000);
	us = now_us();
	for (i = 0; i < 5; i++) {
		usleep(20000);
		ipcd_check(&d);
	}
	us = now_us() - us;
	ck_assert_msg(us < ipcd_ms(1500) * 1000.0, "%.0f us", us);
}
END_TEST

/* Requests after a DETACH in the ring are not executed. */
START_TEST(test_ring_detach)
{
	rawc_open(&r, &d);
	rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
	rawc_put(&r, KVMM_OP_DETACH, 0, NULL, 0);
	rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
	rawc_publish(&r);
	ck_assert(rawc_wait(&r, 2));
	ck_assert(rawc_state(&r, KVMM_CLIENT_DETACHED));
	usleep(30000);
	ck_assert_uint_eq(load_acquire(&r.dctl->cq_tail), 2);
	ck_assert_int_eq(ipcd_number(&d, "vmstat", "client_detach"), 1);
	/* The daemon hangs up, not the client. */
	ck_assert(rawc_hung_up(&r, 5000));
	ck_assert(!ipcd_logged(&d, "expelled"));
}
END_TEST

static Suite *ipc_suite(void)
{
	Suite *s = suite_create("ipc");
	TCase *tc = tcase_create("daemon");

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_attach);
	tcase_add_loop_test(tc, test_attach_refused, 0, ARRAY_SIZE(bad_field));
	tcase_add_test(tc, test_attach_name_without_end);
	tcase_add_loop_test(tc, test_attach_ring_size, 0, 5);
	tcase_add_loop_test(tc, test_socket_garbage, 0, 6);
	tcase_add_test(tc, test_socket_gone_at_once);
	tcase_add_test(tc, test_socket_fds_refused);
	tcase_add_loop_test(tc, test_socket_fds_linger, 0, 2);
	tcase_add_test(tc, test_socket_message_after_attach);
	tcase_add_test(tc, test_socket_greeting_limit);
	tcase_add_test(tc, test_memory_seals);
	tcase_add_test(tc, test_memory_hole_in_c);
	tcase_add_test(tc, test_memory_eventfd_full);
	tcase_add_test(tc, test_ring_nop);
	tcase_add_loop_test(tc, test_ring_forged, 0, NR_FORGERIES);
	tcase_add_test(tc, test_ring_refused);
	tcase_add_test(tc, test_ring_cq_full);
	tcase_add_test(tc, test_ring_results_full);
	tcase_add_test(tc, test_ring_doorbell);
	tcase_add_test(tc, test_ring_detach);
	tcase_add_test(tc, test_idle_daemon_answers);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(ipc_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
