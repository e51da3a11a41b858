// SPDX-License-Identifier: Apache-2.0
/*
 * fake_daemon.c - the other side of libkvmm, for tests
 *
 * One thread: accept, answer ATTACH, serve the rings until the client hangs up.
 * It sleeps by the real protocol, with a short limit, so that doorbells are
 * needed and a lost one shows as slowness, not as a hang.  Tests write to
 * segment D themselves (records, tables, events, state): the thread writes only
 * ring indices, completions, results and the records of SEQ_OPEN.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/fake_daemon.h"

#define SLEEP_MS	20
#define MUST(cond)							\
	do {								\
		if (!(cond)) {						\
			perror("fake daemon: " #cond);			\
			abort();					\
		}							\
	} while (0)

void fake_init(struct fake *f)
{
	const char *dir = getenv("TMPDIR");
	static int nr;
	struct kvmm_attach_rep *r = &f->rep;

	memset(f, 0, sizeof(*f));
	pthread_mutex_init(&f->lock, NULL);
	f->addr.sun_family = AF_UNIX;
	snprintf(f->addr.sun_path, sizeof(f->addr.sun_path), "%s/fake%d-%d.sock",
		 dir ? dir : "/tmp", (int)getpid(), nr++);
	f->sock = -1;
	f->bell = -1;
	f->rep_bytes = sizeof(*r);
	f->nr_fds = 3;
	*r = (struct kvmm_attach_rep) {
		.magic = KVMM_REPLY_MAGIC,
		.abi_version = KVMM_ABI_VERSION,
		.layout_hash = KVMM_LAYOUT_HASH,
		.daemon_epoch = 7,
		.client = 3,
		.domain = 2,
		.pool_bytes = FAKE_EXTENTS * FAKE_EXT_SIZE,
		.extent_size = FAKE_EXT_SIZE,
		.nr_extents = FAKE_EXTENTS,
		.pool_extents = FAKE_EXTENTS,
		.unit = 64,
		.stride[0] = 1024, .nr_shards = 1,
		.block_bytes = 4096,
		.span_extents = 1,
		.span_blocks = 16,
		.c_bytes = 16384,
		.d_bytes = 32768,
		.sq_off = 256,
		.sq_entries = FAKE_RING,
		.arg_off = 4096,
		.arg_bytes = FAKE_ARG_BYTES,
		.cq_off = 512,
		.cq_entries = FAKE_RING,
		.result_off = 4096,
		.result_bytes = FAKE_RES_BYTES,
		.event_off = 1024,
		.event_entries = FAKE_EVENTS,
		.seq_off = 8192,
		.max_seqs = FAKE_SEQS,
		.extent_off = 2048,
		.table_off = 16384,
		.nr_tables = FAKE_TABLES,
		.max_steps = 2,
		.max_batch = 64,
		.step_deadline_ms = 1000,
	};
}

/* ------------------------------------------------------------------ */
/* Verbs                                                               */

/* The result of a successful verb for each entry. */
static void fill_seq_res(char *res, u32 nr, s32 status)
{
	struct kvmm_seq_res *r = (struct kvmm_seq_res *)res;
	u32 i;

	for (i = 0; i < nr; i++)
		r[i] = (struct kvmm_seq_res) { .status = status };
}

static u32 do_open(struct fake *f, u32 nr, char *res)
{
	struct kvmm_open_res *r = (struct kvmm_open_res *)res;
	struct kvmm_seq_status *st;
	u32 i, index;

	for (i = 0; i < nr; i++) {
		index = f->next_seq++ % f->rep.max_seqs;
		st = fake_seq(f, index);
		ring_write_begin(&st->seqcount);
		WRITE_ONCE(st->generation, st->generation + 1);
		WRITE_ONCE(st->state, KVMM_SEQ_READY);
		WRITE_ONCE(st->table[0], KVMM_NO_INDEX);
		ring_write_end(&st->seqcount);
		r[i] = (struct kvmm_open_res) {
			.limiting_pool = KVMM_NO_POOL,
			.seq = KVMM_SEQ(index, st->generation),
		};
	}
	return nr * sizeof(*r);
}

static u32 do_match(struct fake *f, const u64 *args, char *res)
{
	const struct kvmm_match_arg *a = (const struct kvmm_match_arg *)args;
	const u32 *ids = (const u32 *)(a + 1);
	u32 i;

	if (!a->start) {
		f->match_end = 0;
		f->match_last = false;
	}
	if (a->start != f->match_end)
		f->broken = "SEQ_MATCH leaves a gap";
	if (f->match_last)
		f->broken = "SEQ_MATCH goes on after the last id";
	f->match_last = a->flags & KVMM_MATCH_LAST;
	for (i = 0; i < a->nr_ids; i++)
		f->sum_ids = f->sum_ids * 31 + ids[i];
	f->nr_ids += a->nr_ids;
	f->match_end += a->nr_ids;
	fill_seq_res(res, 1, KVMM_SEQ_INDEX(a->seq) == 999 ? -ENOENT : 0);
	return sizeof(struct kvmm_seq_res);
}

/* The cookie of a place is the place. */
static u32 do_lookup(struct fake *f, const u64 *args, char *res)
{
	const struct kvmm_lookup_arg *a = (const struct kvmm_lookup_arg *)args;
	struct kvmm_lookup_res *r = (struct kvmm_lookup_res *)res;
	u32 ends = a->start < f->on_device ? f->on_device : f->cached;
	u32 whole = a->nr_ids / FAKE_BLOCK * FAKE_BLOCK;

	if (a->cookie[0] != a->start || a->start % FAKE_BLOCK)
		f->broken = "SEQ_LOOKUP has the cookie of another place";
	if (a->nr_ids != whole && !(a->flags & KVMM_LOOKUP_LAST))
		f->broken = "SEQ_LOOKUP ends inside a block";
	*r = (struct kvmm_lookup_res){ .nr_runs = 1 };
	r->found = min(min(whole, ends > a->start ? ends - a->start : 0), f->lookup_most);
	if (r->found < whole && a->start + r->found < f->cached)
		r->flags = KVMM_LOOKUP_MORE;
	r->run[0].tier = a->start < f->on_device ? KVMM_TIER_DEVICE : KVMM_TIER_AREA;
	r->run[0].blocks = r->found / FAKE_BLOCK;
	r->tokens[r->run[0].tier] = r->found;
	r->cookie[0] = a->start + r->found;
	r->hit = r->found ? a->start + r->found : 0;
	if (f->hit_every)
		r->hit = r->hit / f->hit_every * f->hit_every;
	if (r->hit <= a->start)
		r->hit = 0;
	r->hit_cookie[0] = r->hit;
	if (f->spoil_lookup)
		f->spoil_lookup(r);
	return sizeof(*r);
}

/* A record for each (entry, group); table_lo of group g is g - 1, that of group 0 none. */
static u32 do_begin(struct fake *f, u32 nr, const u64 *args, char *res)
{
	const struct kvmm_begin_arg *a = (const struct kvmm_begin_arg *)args;
	struct kvmm_begin_res *r = (struct kvmm_begin_res *)res;
	const u32 groups = f->req.nr_groups;
	u32 i;

	for (i = 0; i < nr * groups; i++)
		r[i] = (struct kvmm_begin_res) {
			.valid_len = a[i / groups].start,
			.table_lo = i % groups - 1,
			.limiting_pool = KVMM_NO_POOL,
			.seq_epoch = a[i / groups].seq_epoch,
		};
	return nr * groups * sizeof(*r);
}

static u32 do_end(struct fake *f, const struct kvmm_sqe *sqe, const u64 *args,
		  char *res)
{
	const struct kvmm_end_arg *a = (const struct kvmm_end_arg *)args;
	struct kvmm_end_res *r = (struct kvmm_end_res *)res;
	u64 nr_ids = 0;
	u32 i;

	for (i = 0; i < sqe->nr; i++) {
		r[i] = (struct kvmm_end_res) { .valid_len = a[i].valid_len };
		nr_ids += a[i].nr_ids;
	}
	if (sqe->arg_len != sqe->nr * sizeof(*a) + nr_ids * sizeof(u32))
		f->broken = "STEP_END has other ids than it says";
	return sqe->nr * sizeof(*r);
}

static u32 do_ack(struct fake *f, u32 nr, const u64 *args, char *res)
{
	const struct kvmm_ack_arg *a = (const struct kvmm_ack_arg *)args;
	u32 i;

	for (i = 0; i < nr; i++) {
		if (a[i].extent >= FAKE_EXTENTS)
			f->broken = "EXTENT_ACK of no extent";
		else
			f->ack[a[i].extent] = a[i];
	}
	fill_seq_res(res, nr, 0);
	f->nr_acks += nr;
	return nr * sizeof(struct kvmm_seq_res);
}

static u32 do_fork(struct fake *f, const u64 *args, char *res)
{
	const struct kvmm_fork_arg *a = (const struct kvmm_fork_arg *)args;

	return do_open(f, a->nr_children, res);
}

/* The result repeats the low half of the second word of each entry. */
static u32 do_pairs(u32 nr, const u64 *args, char *res)
{
	struct kvmm_seq_res *r = (struct kvmm_seq_res *)res;
	u32 i;

	for (i = 0; i < nr; i++)
		r[i] = (struct kvmm_seq_res) {
			.status = KVMM_SEQ_GEN(args[2 * i]) ? 0 : -ENOENT,
			.valid_len = (u32)args[2 * i + 1],
		};
	return nr * sizeof(*r);
}

/* Fill @res.  Return: its bytes. */
static u32 do_verb(struct fake *f, const struct kvmm_sqe *sqe, const u64 *args,
		   char *res, u32 *nr)
{
	const struct kvmm_seq_arg *a = (const struct kvmm_seq_arg *)args;
	u32 i;

	*nr = sqe->nr;
	switch (sqe->op) {
	case KVMM_OP_SEQ_OPEN:
		return do_open(f, sqe->nr, res);
	case KVMM_OP_SEQ_MATCH:
		return do_match(f, args, res);
	case KVMM_OP_SEQ_LOOKUP:
		return do_lookup(f, args, res);
	case KVMM_OP_STEP_BEGIN:
		*nr = sqe->nr * f->req.nr_groups;
		return do_begin(f, sqe->nr, args, res);
	case KVMM_OP_STEP_END:
		return do_end(f, sqe, args, res);
	case KVMM_OP_SEQ_FORK:
		*nr = ((const struct kvmm_fork_arg *)args)->nr_children;
		return do_fork(f, args, res);
	case KVMM_OP_SEQ_REMAP:
	case KVMM_OP_SEQ_TRUNCATE:
	case KVMM_OP_SEQ_TRIM:
		return do_pairs(sqe->nr, args, res);
	case KVMM_OP_SEQ_CLOSE:
		for (i = 0; i < sqe->nr; i++)
			fill_seq_res(res + i * sizeof(struct kvmm_seq_res), 1,
				     KVMM_SEQ_GEN(a[i].seq) ? 0 : -ENOENT);
		return sqe->nr * sizeof(struct kvmm_seq_res);
	case KVMM_OP_EXTENT_ACK:
		return do_ack(f, sqe->nr, args, res);
	default:
		*nr = 0;
		return 0;
	}
}

static void judge_request(struct fake *f, const struct kvmm_sqe *sqe)
{
	if (sqe->flags || sqe->resv)
		f->broken = "a reserved field is not zero";
	if (sqe->op >= KVMM_NR_OPS)
		f->broken = "no such verb";
	else
		f->ops[sqe->op]++;
	if (sqe->number <= f->last_number)
		f->broken = "numbers do not rise";
	f->last_number = sqe->number;
	if (sqe->arg_off % 8 || sqe->arg_off > f->rep.arg_bytes ||
	    sqe->arg_len > f->rep.arg_bytes - sqe->arg_off)
		f->broken = "arguments lie outside their area";
	if (!sqe->step != (sqe->op != KVMM_OP_STEP_BEGIN &&
			   sqe->op != KVMM_OP_STEP_END))
		f->broken = "a step number where none belongs";
}

static void answer(struct fake *f, const struct kvmm_sqe *sqe)
{
	u64 args[FAKE_ARG_BYTES / 8], results[FAKE_RES_BYTES / 8];
	struct kvmm_cqe cqe;
	u32 bytes, nr;

	shared_copy_in(args, f->c + f->rep.arg_off + sqe->arg_off,
		       sqe->arg_len);
	bytes = do_verb(f, sqe, args, (char *)results, &nr);
	if (f->res_pos + bytes > f->rep.result_bytes)
		f->res_pos = 0;
	cqe = (struct kvmm_cqe) {
		.number = sqe->number,
		.user_data = sqe->user_data,
		.nr = nr - min(nr, f->short_by),
		.result_off = f->res_pos,
	};
	shared_copy_out(f->d + f->rep.result_off + f->res_pos, results, bytes);
	f->res_pos += bytes;
	if (f->spoil)
		f->spoil(&cqe);
	shared_copy_out(f->d + f->rep.cq_off +
			ring_prod_slot(&f->cq) * sizeof(cqe), &cqe, sizeof(cqe));
	ring_prod_advance(&f->cq);
	ring_prod_publish(&f->cq);
	ring_wake_client(&f->dctl->wake, &f->ctl->need_wake);
	if (sqe->op == KVMM_OP_DETACH)
		fake_set_state(f, KVMM_CLIENT_DETACHED, 0);
}

/* ------------------------------------------------------------------ */
/* The thread                                                          */

/* From its return on the thread takes no requests, or takes them again. */
void fake_hold(struct fake *f, u32 hold)
{
	pthread_mutex_lock(&f->lock);
	f->hold = hold;
	pthread_mutex_unlock(&f->lock);
}

/* Return: requests answered. */
static u32 serve_ring(struct fake *f)
{
	struct kvmm_sqe sqe;
	u32 done = 0;

	pthread_mutex_lock(&f->lock);
	if (f->hold) {
		pthread_mutex_unlock(&f->lock);
		return 0;
	}
	if (ring_cons_look(&f->sq) < 0 || ring_prod_look(&f->cq) < 0)
		f->broken = "an index is forged";
	while (!f->broken && ring_cons_avail(&f->sq) && ring_prod_room(&f->cq)) {
		shared_copy_in(&sqe, f->c + f->rep.sq_off +
			       ring_cons_slot(&f->sq) * sizeof(sqe),
			       sizeof(sqe));
		ring_cons_advance(&f->sq);
		ring_cons_publish(&f->sq);
		judge_request(f, &sqe);
		if (!f->broken)
			answer(f, &sqe);
		done++;
	}
	pthread_mutex_unlock(&f->lock);
	return done;
}

static void serve(struct fake *f)
{
	struct pollfd p[2] = {
		{ .fd = f->bell, .events = POLLIN },
		{ .fd = f->sock, .events = POLLIN },
	};
	u64 count;
	char c;

	while (!load_acquire(&f->stop)) {
		if (serve_ring(f))
			continue;
		ring_sleep_prepare(&f->dctl->need_doorbell);
		if (!serve_ring(f))
			poll(p, 2, SLEEP_MS);
		ring_sleep_finish(&f->dctl->need_doorbell);
		if (read(f->bell, &count, sizeof(count)) < 0)
			count = 0;
		if (!recv(f->sock, &c, 1, MSG_DONTWAIT | MSG_PEEK))
			break;
	}
}

int fake_memfd(size_t bytes)
{
	int fd = memfd_create("fake", MFD_CLOEXEC);

	MUST(fd >= 0 && !ftruncate(fd, (off_t)bytes));
	return fd;
}

static void send_fds(int sock, const void *data, size_t bytes, const int *fds,
		     u32 nr)
{
	union {
		struct cmsghdr	head;
		char		room[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
	} control = { .head = { .cmsg_len = 0 } };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nr) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nr * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(nr * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, nr * sizeof(int));
	}
	MUST(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)bytes);
}

/* Make the segments, and map them in this process too. */
static void make_segments(struct fake *f, int *fds)
{
	const struct kvmm_attach_rep *r = &f->rep;
	const size_t size = 1 << 20;

	fds[0] = fake_memfd(f->keep_size ? f->keep_size : size);
	fds[1] = fake_memfd(f->keep_size ? f->keep_size : size);
	fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fds[3] = fake_memfd(4096);
	f->c = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	f->d = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	MUST(fds[2] >= 0 && f->c != MAP_FAILED && f->d != MAP_FAILED);
	f->ctl = (struct kvmm_client_ctl *)f->c;
	f->dctl = (struct kvmm_daemon_ctl *)f->d;
	if (!f->keep_size) {
		f->dctl->state = KVMM_CLIENT_ALIVE;
		f->dctl->daemon_epoch = r->daemon_epoch;
	}
	ring_cons_init(&f->sq, FAKE_RING, 0, &f->dctl->sq_head,
		       &f->ctl->sq_tail);
	ring_prod_init(&f->cq, FAKE_RING, 0, &f->dctl->cq_tail,
		       &f->ctl->cq_head);
	f->last_number = 0;
	f->res_pos = 0;
	f->bell = fds[2];
}

static void one_client(struct fake *f)
{
	ssize_t n;
	int fds[4];
	char c;

	n = recv(f->sock, &f->req, sizeof(f->req), 0);
	if (n != sizeof(f->req) || f->req.magic != KVMM_ATTACH_MAGIC)
		f->broken = "no request for ATTACH";
	if (f->hang_up)
		return;
	if (f->mute) {
		while (!load_acquire(&f->stop) && recv(f->sock, &c, 1, 0) > 0)
			;
		return;
	}
	make_segments(f, fds);
	send_fds(f->sock, &f->rep, f->rep_bytes, fds, f->nr_fds);
	store_release(&f->serving, 1);
	if (f->nr_fds == 3 && !f->rep.status && !f->keep_size)
		serve(f);
	close(fds[0]);
	close(fds[1]);
	close(fds[3]);
}

static void leave_client(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
	if (f->sock >= 0)
		close(f->sock);
	if (f->bell >= 0)
		close(f->bell);
	if (f->c) {
		munmap(f->c, 1 << 20);
		munmap(f->d, 1 << 20);
	}
	f->sock = -1;
	f->bell = -1;
	f->c = NULL;
	f->d = NULL;
	store_release(&f->serving, 0);
	pthread_mutex_unlock(&f->lock);
}

static void *fake_thread(void *arg)
{
	struct fake *f = arg;

	int sock;

	while (!load_acquire(&f->stop)) {
		sock = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (sock < 0)
			break;
		pthread_mutex_lock(&f->lock);
		f->sock = sock;
		pthread_mutex_unlock(&f->lock);
		one_client(f);
		if (!load_acquire(&f->stop))
			leave_client(f);
	}
	return NULL;
}

void fake_start(struct fake *f)
{
	f->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	MUST(f->listen_fd >= 0);
	unlink(f->addr.sun_path);
	MUST(!bind(f->listen_fd, (struct sockaddr *)&f->addr, sizeof(f->addr)));
	MUST(!listen(f->listen_fd, 8));
	MUST(!pthread_create(&f->thread, NULL, fake_thread, f));
}

void fake_wait_serving(struct fake *f)
{
	while (!load_acquire(&f->serving))
		usleep(1000);
}

void fake_die(struct fake *f)
{
	if (!f->thread)
		return;
	store_release(&f->stop, 1);
	pthread_mutex_lock(&f->lock);
	if (f->sock >= 0)
		shutdown(f->sock, SHUT_RDWR);
	shutdown(f->listen_fd, SHUT_RDWR);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	f->thread = 0;
	if (f->sock >= 0)
		close(f->sock);
	f->sock = -1;
}

void fake_stop(struct fake *f)
{
	fake_die(f);
	leave_client(f);
	close(f->listen_fd);
	unlink(f->addr.sun_path);
}

/* ------------------------------------------------------------------ */
/* Calls of tests while the thread runs                                */

void fake_lie(struct fake *f, void (*spoil)(struct kvmm_cqe *cqe),
	      u32 short_by)
{
	pthread_mutex_lock(&f->lock);
	f->spoil = spoil;
	f->short_by = short_by;
	pthread_mutex_unlock(&f->lock);
}

u32 fake_ops(struct fake *f, u32 op)
{
	u32 n;

	pthread_mutex_lock(&f->lock);
	n = f->ops[op];
	pthread_mutex_unlock(&f->lock);
	return n;
}

u32 fake_acks(struct fake *f)
{
	u32 n;

	pthread_mutex_lock(&f->lock);
	n = f->nr_acks;
	pthread_mutex_unlock(&f->lock);
	return n;
}

struct kvmm_ack_arg fake_ack(struct fake *f, u32 extent)
{
	struct kvmm_ack_arg ack;

	pthread_mutex_lock(&f->lock);
	ack = f->ack[extent];
	pthread_mutex_unlock(&f->lock);
	return ack;
}

void fake_ids(struct fake *f, u64 *nr, u64 *sum)
{
	pthread_mutex_lock(&f->lock);
	*nr = f->nr_ids;
	*sum = f->sum_ids;
	pthread_mutex_unlock(&f->lock);
}

/* Did the last SEQ_MATCH have the flag that its ids are complete? */
bool fake_match_is_last(struct fake *f)
{
	bool last;

	pthread_mutex_lock(&f->lock);
	last = f->match_last;
	pthread_mutex_unlock(&f->lock);
	return last;
}

const char *fake_broken(struct fake *f)
{
	const char *text;

	pthread_mutex_lock(&f->lock);
	text = f->broken;
	pthread_mutex_unlock(&f->lock);
	return text;
}

void fake_set_state(struct fake *f, u32 state, int reason)
{
	ring_write_begin(&f->dctl->seqcount);
	WRITE_ONCE(f->dctl->reason, reason);
	store_release(&f->dctl->state, state);
	ring_write_end(&f->dctl->seqcount);
	ring_wake_client(&f->dctl->wake, &f->ctl->need_wake);
}

void fake_event(struct fake *f, u32 type, u32 index)
{
	struct kvmm_event ev __attribute__((aligned(8))) = {
		.type = type,
		.index = index,
	};

	ring_event_put(f->d + f->rep.event_off, FAKE_EVENTS,
		       &f->dctl->event_tail, &ev);
	ring_wake_client(&f->dctl->wake, &f->ctl->need_wake);
}

void fake_send_map(struct fake *f, u64 magic, u32 nr,
		   const struct kvmm_map_entry *entry, const int *fds,
		   u32 nr_fds)
{
	struct kvmm_map_msg m = { .magic = magic, .nr = nr };

	memcpy(m.entry, entry, nr * sizeof(*entry));
	send_fds(f->sock, &m, offsetof(struct kvmm_map_msg, entry) +
		 nr * sizeof(*entry), fds, nr_fds);
}

struct kvmm_seq_status *fake_seq(struct fake *f, u32 index)
{
	return (struct kvmm_seq_status *)(f->d + f->rep.seq_off) + index;
}

struct kvmm_extent_status *fake_extent(struct fake *f, u32 index)
{
	return (struct kvmm_extent_status *)(f->d + f->rep.extent_off) + index;
}

struct kvmm_table_page *fake_table(struct fake *f, u32 index)
{
	return (struct kvmm_table_page *)(f->d + f->rep.table_off) + index;
}
