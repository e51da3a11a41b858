// SPDX-License-Identifier: Apache-2.0
/*
 * wire.c - a client that speaks the ABI by hand
 *
 * Requests are put into the ring one by one, and the client polls for answers,
 * with a deadline: the client may be slow, and the daemon may expel it.  A wire
 * belongs to one thread of one process, which may die at any moment.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/integration/harness.h"
#include "tests/integration/wire.h"

#define ANSWER_MS	2000

union wire_control {
	char		buf[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
	struct cmsghdr	align;
};

void wire_request(struct kvmm_attach_req *req, const char *domain)
{
	u32 i;

	memset(req, 0, sizeof(*req));
	req->magic = KVMM_ATTACH_MAGIC;
	req->abi_version = KVMM_ABI_VERSION;
	req->layout_hash = KVMM_LAYOUT_HASH;
	snprintf(req->domain, sizeof(req->domain), "%s", domain);
	req->identity[0] = 7;
	req->block_tokens = 16;
	req->nr_shards = 1;
	req->nr_groups = 1;
	req->max_steps = 2;
	req->sq_entries = 64;
	req->max_seqs = 64;
	req->group[0].layers = 2;
	req->group[0].kv_heads = 2;
	req->group[0].k_bytes = 256;
	req->group[0].v_bytes = 256;
	for (i = 0; i < KVMM_MAX_TIERS; i++) {
		req->limits[i].high = KVMM_LIMIT_MAX;
		req->limits[i].max = KVMM_LIMIT_MAX;
	}
	req->weight = 100;
}

int wire_connect(const char *path, int type)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int err, s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (s < 0)
		return -errno;
	memcpy(sun.sun_path, path, min(strlen(path),
				       sizeof(sun.sun_path) - 1));
	if (!connect(s, (struct sockaddr *)&sun, sizeof(sun)))
		return s;
	err = -errno;
	close(s);
	return err;
}

int wire_send(int sock, const void *buf, size_t len, const int *fds, u32 nr_fds)
{
	union wire_control control;
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;

	if (nr_fds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, nr_fds * sizeof(int));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno :
								      0;
}

/* Receive one message and its descriptors.  Return: bytes, 0 at the end, or -errno. */
static ssize_t wire_receive(int sock, void *buf, size_t len, int *fds,
			    u32 *nr_fds, int ms)
{
	union wire_control control;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct cmsghdr *cm;
	ssize_t n;

	*nr_fds = 0;
	if (poll(&p, 1, ms) < 1)
		return -EAGAIN;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	cm = CMSG_FIRSTHDR(&msg);
	if (cm && cm->cmsg_type == SCM_RIGHTS) {
		*nr_fds = (u32)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(cm), *nr_fds * sizeof(int));
	}
	return n;
}

static int wire_map(struct wire *w)
{
	w->c = mmap(NULL, w->rep.c_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		    w->fd[0], 0);
	w->d = mmap(NULL, w->rep.d_bytes, PROT_READ, MAP_SHARED, w->fd[1], 0);
	if (w->c == MAP_FAILED || w->d == MAP_FAILED)
		return -ENOMEM;
	w->ctl = (struct kvmm_client_ctl *)w->c;
	w->dctl = (const struct kvmm_daemon_ctl *)w->d;
	return 0;
}

int wire_attach(struct wire *w, const char *path,
		const struct kvmm_attach_req *req)
{
	int fds[KVMM_MAP_BATCH];
	ssize_t n;
	u32 nr;

	memset(w, 0, sizeof(*w));
	w->sock = wire_connect(path, SOCK_SEQPACKET);
	if (w->sock < 0)
		return w->sock;
	if (send(w->sock, req, sizeof(*req), MSG_NOSIGNAL) < 0)
		return -errno;
	n = wire_receive(w->sock, &w->rep, sizeof(w->rep), fds, &nr, 10000);
	if (n != sizeof(w->rep))
		return n < 0 ? (int)n : -ECONNRESET;
	if (w->rep.status || nr != 3)
		return w->rep.status ? w->rep.status : -EPROTO;
	memcpy(w->fd, fds, sizeof(w->fd));
	return wire_map(w);
}

void wire_close(struct wire *w)
{
	u32 i;

	for (i = 0; i < w->nr_ext; i++)
		close(w->ext[i].fd);
	if (w->ctl) {
		munmap(w->c, w->rep.c_bytes);
		munmap((void *)w->d, w->rep.d_bytes);
		for (i = 0; i < 3; i++)
			close(w->fd[i]);
	}
	if (w->sock >= 0)
		close(w->sock);
	memset(w, 0, sizeof(*w));
	w->sock = -1;
}

bool wire_alive(const struct wire *w)
{
	return w->dctl && load_acquire(&w->dctl->state) == KVMM_CLIENT_ALIVE;
}

struct kvmm_sqe *wire_put(struct wire *w, u16 op, u32 nr, const void *args,
			  u32 bytes)
{
	struct kvmm_sqe *q = (struct kvmm_sqe *)(w->c + w->rep.sq_off) +
			     (w->tail++ & (w->rep.sq_entries - 1));

	memset(q, 0, sizeof(*q));
	q->op = op;
	q->nr = nr;
	q->number = ++w->number;
	q->user_data = ~q->number;
	q->arg_len = bytes;
	if (bytes)
		memcpy(w->c + w->rep.arg_off, args, bytes);
	return q;
}

void wire_bell(const struct wire *w)
{
	static const u64 one = 1;

	if (write(w->fd[2], &one, sizeof(one)) < 0)
		return;
}

void wire_publish(struct wire *w)
{
	store_release(&w->ctl->sq_tail, w->tail);
	if (ring_sleeper_waits(&w->dctl->need_doorbell))
		wire_bell(w);
}

const void *wire_take(struct wire *w, u32 ms, int *status)
{
	u64 end = now_ms() + ms;
	const struct kvmm_cqe *q;

	*status = -ETIMEDOUT;
	while (load_acquire(&w->dctl->cq_tail) == w->taken) {
		if (!wire_alive(w) || now_ms() > end)
			return NULL;
		sched_yield();
	}
	q = (const struct kvmm_cqe *)(w->d + w->rep.cq_off) +
	    (w->taken++ & (w->rep.cq_entries - 1));
	*status = q->status;
	return q->nr ? w->d + w->rep.result_off + q->result_off : NULL;
}

int wire_call(struct wire *w, u16 op, u32 nr, const void *args, u32 bytes,
	      void *res, u32 res_bytes)
{
	const void *p;
	int status;

	wire_put(w, op, nr, args, bytes);
	wire_publish(w);
	p = wire_take(w, ANSWER_MS, &status);
	if (p && res)
		memcpy(res, p, res_bytes);
	store_release(&w->ctl->cq_head, w->taken);
	return !status && res && !p ? -EPROTO : status;
}

int wire_detach(struct wire *w)
{
	const u64 end = now_ms() + ANSWER_MS;
	int status;

	wire_put(w, KVMM_OP_DETACH, 0, NULL, 0);
	wire_publish(w);
	/* The daemon removes the client a moment before it answers. */
	while (load_acquire(&w->dctl->cq_tail) == w->taken && now_ms() < end)
		sched_yield();
	(void)wire_take(w, 0, &status);
	return status;
}

static void wire_ack(struct wire *w, const struct kvmm_map_msg *msg)
{
	struct kvmm_ack_arg a[KVMM_MAP_BATCH];
	u32 i;

	memset(a, 0, sizeof(a));
	for (i = 0; i < msg->nr; i++) {
		a[i].extent = msg->entry[i].extent;
		a[i].generation = msg->entry[i].generation;
		a[i].what = KVMM_ACK_MAP;
	}
	wire_call(w, KVMM_OP_EXTENT_ACK, msg->nr, a,
		  msg->nr * (u32)sizeof(a[0]), NULL, 0);
}

void wire_extents(struct wire *w, bool honest)
{
	struct kvmm_map_msg msg;
	int fds[KVMM_MAP_BATCH];
	u32 nr, i;

	while (wire_receive(w->sock, &msg, sizeof(msg), fds, &nr, 0) > 0) {
		for (i = 0; i < nr; i++) {
			if (w->nr_ext == WIRE_EXTENTS) {
				close(fds[i]);
				continue;
			}
			w->ext[w->nr_ext].fd = fds[i];
			w->ext[w->nr_ext].extent = msg.entry[i].extent;
			w->ext[w->nr_ext++].generation =
				msg.entry[i].generation;
		}
		if (honest && nr)
			wire_ack(w, &msg);
	}
}

static bool wire_ready(struct wire *w, u64 seq)
{
	const struct kvmm_seq_status *st =
		(const struct kvmm_seq_status *)(w->d + w->rep.seq_off) +
		KVMM_SEQ_INDEX(seq);
	u64 end = now_ms() + ANSWER_MS;

	while (load_acquire(&st->state) != KVMM_SEQ_READY) {
		if (!wire_alive(w) || now_ms() > end)
			return false;
		wire_extents(w, true);
		sched_yield();
	}
	return true;
}

u64 wire_seq(struct wire *w, u32 tokens, u32 salt)
{
	struct kvmm_open_arg open = {
		.prompt_len = tokens, .max_tokens = 16, .priority = salt % 3,
	};
	struct {
		struct kvmm_match_arg	arg;
		u32			ids[256];
	} m = { .arg = { .flags = KVMM_MATCH_LAST } };
	struct kvmm_open_res got;
	struct kvmm_seq_res res;
	u32 i;

	tokens = min(tokens, (u32)ARRAY_SIZE(m.ids));
	open.prompt_len = tokens;
	if (wire_call(w, KVMM_OP_SEQ_OPEN, 1, &open, sizeof(open), &got,
		      sizeof(got)) || got.status)
		return 0;
	for (i = 0; i < tokens; i++)
		m.ids[i] = i * 7 + salt;
	m.arg.seq = got.seq;
	m.arg.nr_ids = tokens;
	if (wire_call(w, KVMM_OP_SEQ_MATCH, 1, &m, (u32)sizeof(m.arg) +
		      tokens * 4, &res, sizeof(res)) || res.status)
		return 0;
	return wire_ready(w, got.seq) ? got.seq : 0;
}

int wire_step(struct wire *w, u64 seq)
{
	const struct kvmm_seq_status *st =
		(const struct kvmm_seq_status *)(w->d + w->rep.seq_off) +
		KVMM_SEQ_INDEX(seq);
	struct kvmm_begin_arg a = {
		.seq = seq, .max_tokens = 1,
		.start = READ_ONCE(st->valid_len),
		.seq_epoch = READ_ONCE(st->seq_epoch),
	};
	struct kvmm_begin_res res = { .status = -EIO };
	struct kvmm_sqe *q;
	const void *p;
	int status;

	q = wire_put(w, KVMM_OP_STEP_BEGIN, 1, &a, sizeof(a));
	q->step = ++w->step;
	wire_publish(w);
	p = wire_take(w, ANSWER_MS, &status);
	if (p)
		memcpy(&res, p, sizeof(res));
	store_release(&w->ctl->cq_head, w->taken);
	return status ? status : res.status;
}
