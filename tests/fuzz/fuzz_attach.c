// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_attach.c - messages on the attach socket, to the real shell
 *
 * An input is a list of events of connections: one is opened, a message with
 * descriptors arrives on it (an attach request with some bytes changed, or any
 * bytes), it hangs up, its process ends, time is up.  The code is
 * kvmm/ipc/clients as in the daemon, over real sockets, down to the core; only
 * the processes at the other end are made up.
 *
 * Laws: an answer is a refusal with one line of text, or lays out two segments
 * in which nothing overlaps and nothing lies outside.  When all connections are
 * gone the core knows no client, the walkers find no fault, no descriptor is left.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <kvmm/clock.h>

#include "tests/fuzz/inproc.h"

#define PEERS	5u
#define EVENTS	24u

/* The other ends of the connections. */
static struct peer {
	struct client	*c;
	int		sock;
} peers[PEERS];

static void request_right(struct kvmm_attach_req *req)
{
	*req = (struct kvmm_attach_req){
		.magic		= KVMM_ATTACH_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.domain		= "a",
		.block_tokens	= 16,
		.nr_shards	= 1,
		.nr_groups	= 1,
		.max_steps	= 2,
		.group[0]	= { .layers = 1, .kv_heads = 1,
				    .k_bytes = 32, .v_bytes = 32 },
		.limits[0]	= { .max = KVMM_LIMIT_MAX },
		.weight		= 100,
	};
}

/* ---- laws ---- */

static u64 part(u64 at, u64 off, u64 bytes, u64 end, const char *what)
{
	FUZZ_LAW(off >= at && off % 64 == 0 && bytes <= end &&
		 off <= end - bytes, "%s: %llu bytes at %llu, from %llu to %llu",
		 what, (unsigned long long)bytes, (unsigned long long)off,
		 (unsigned long long)at, (unsigned long long)end);
	return off + bytes;
}

static void judge_layout(const struct kvmm_attach_rep *r)
{
	u64 at = sizeof(struct kvmm_client_ctl);

	FUZZ_LAW(is_power_of_2(r->sq_entries) && is_power_of_2(r->cq_entries) &&
		 is_power_of_2(r->event_entries), "rings");
	at = part(at, r->sq_off, (u64)r->sq_entries * sizeof(struct kvmm_sqe),
		  r->c_bytes, "sqes");
	part(at, r->arg_off, r->arg_bytes, r->c_bytes, "args");
	at = sizeof(struct kvmm_daemon_ctl);
	at = part(at, r->cq_off, (u64)r->cq_entries * sizeof(struct kvmm_cqe),
		  r->d_bytes, "cqes");
	at = part(at, r->result_off, r->result_bytes, r->d_bytes, "results");
	at = part(at, r->event_off, (u64)r->event_entries *
		  sizeof(struct kvmm_event), r->d_bytes, "events");
	at = part(at, r->seq_off, (u64)r->max_seqs *
		  sizeof(struct kvmm_seq_status), r->d_bytes, "sequences");
	at = part(at, r->extent_off, (u64)r->nr_extents *
		  sizeof(struct kvmm_extent_status), r->d_bytes, "extents");
	part(at, r->table_off, (u64)r->nr_tables *
	     sizeof(struct kvmm_table_page), r->d_bytes, "tables");
	FUZZ_LAW(r->max_seqs && r->max_seqs <= INPROC_SEQS, "%u sequences",
		 r->max_seqs);
	FUZZ_LAW(r->max_steps && r->max_steps <= KVMM_MAX_STEPS, "%u steps",
		 r->max_steps);
	FUZZ_LAW(r->unit && r->block_bytes && r->block_bytes % r->unit == 0 &&
		 r->span_blocks && r->span_extents <= CORE_SPAN_MAX &&
		 (u64)r->span_blocks * r->block_bytes + r->span_tail ==
		 (u64)r->span_extents * r->extent_size, "blocks of a span");
}

static void judge_answer(const struct kvmm_attach_rep *r, ssize_t n)
{
	FUZZ_LAW(n == sizeof(*r) && r->magic == KVMM_REPLY_MAGIC &&
		 r->status <= 0, "an answer of %zd bytes, status %d", n,
		 r->status);
	FUZZ_LAW(memchr(r->text, 0, sizeof(r->text)), "the text does not end");
	if (!r->status) {
		judge_layout(r);
		return;
	}
	FUZZ_LAW(r->text[0] && !strchr(r->text, '\n'), "refused with %d: '%s'",
		 r->status, r->text);
}

/* Read and judge an answer. */
static void peer_read(struct peer *p)
{
	struct kvmm_attach_rep rep;
	ssize_t n;

	if (p->sock < 0)
		return;
	n = recv(p->sock, &rep, sizeof(rep), MSG_PEEK | MSG_DONTWAIT);
	if (n >= (ssize_t)sizeof(u64) && rep.magic == KVMM_REPLY_MAGIC)
		judge_answer(&rep, n);
	inproc_drain(p->sock);
}

/* ---- events ---- */

/* Open a connection, as client_admit() takes it in. */
static void ev_connect(struct peer *p, u8 b)
{
	struct client *c;
	int sock[2];

	if (p->c)
		return;
	inproc_pair(SOCK_SEQPACKET, sock);
	c = client_alloc(sock[0]);
	FUZZ_LAW(c, "no memory");
	c->pidfd.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->mm.pidfd = c->pidfd.fd;
	c->uid = b % INPROC_UIDS;
	c->info.uid = c->uid;
	memcpy(c->info.comm, "fuzz", 5);
	c->info.pid = 1000 + (pid_t)(p - peers);
	c->sock.fn = client_on_sock;
	c->sock.arg = &inproc->clients;
	c->deadline = kv_now_ns() + GREETING_MS * NSEC_PER_MSEC;
	list_add_tail(&inproc->clients.greeting, &c->node);
	inproc->clients.nr_greeting++;
	FUZZ_LAW(!watch_add(&inproc->loop, &c->sock, EPOLLIN | EPOLLRDHUP), "epoll");
	p->c = c;
	p->sock = sock[1];
}

static void peer_event(struct peer *p, u32 events)
{
	if (p->c->sock.fn)
		p->c->sock.fn(p->c->sock.arg, &p->c->sock, events);
	peer_read(p);
}

/* Most messages are nearly right, or no code past the first check would be reached. */
static void ev_message(struct fuzz *f, struct peer *p, u8 b)
{
	struct kvmm_attach_req req;
	u8 how = fuzz_u8(f), buf[1024];
	size_t len = sizeof(req);
	u32 n;

	request_right(&req);
	req.domain[0] = (char)('a' + (b & 3));
	if (how & 3) {
		for (n = how >> 2 & 7; n; n--) {
			u32 at = fuzz_u16(f) % sizeof(req);

			fuzz_bytes(f, (u8 *)&req + at,
				   min(sizeof(req) - at,
				       (size_t)1 << (fuzz_u8(f) & 7)));
		}
	} else if (how & 4) {
		fuzz_bytes(f, &req, sizeof(req));
	}
	memset(buf, 0, sizeof(buf));
	memcpy(buf, &req, sizeof(req));
	if (how >= 240)
		len = fuzz_u16(f) % sizeof(buf);
	inproc_no_memory = how == 239;
	inproc_send(p->sock, buf, len, how >= 224 && how < 239 ? how - 223 : 0);
	peer_event(p, EPOLLIN);
	inproc_no_memory = false;
}

static void ev_hang_up(struct peer *p)
{
	if (p->sock >= 0)
		close(p->sock);
	p->sock = -1;
	if (p->c->sock.fn)
		p->c->sock.fn(p->c->sock.arg, &p->c->sock, EPOLLIN | EPOLLRDHUP);
}

static void free_dead(void)
{
	struct list *l, *tmp;
	u32 i;

	list_for_each(&inproc->clients.dead, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		for (i = 0; i < PEERS; i++) {
			if (peers[i].c != c)
				continue;
			peers[i].c = NULL;
			if (peers[i].sock >= 0)
				close(peers[i].sock);
			peers[i].sock = -1;
		}
		list_del(l);
		client_free(&inproc->clients, c);
	}
}

static void ev_process_ends(struct peer *p)
{
	if (p->c->pidfd.fn)
		p->c->pidfd.fn(p->c->pidfd.arg, &p->c->pidfd, EPOLLIN);
}

static void play(struct fuzz *f)
{
	u8 b = fuzz_u8(f);
	struct peer *p = &peers[(b >> 5) % PEERS];

	if (!p->c)
		ev_connect(p, b);
	switch (b & 7) {
	case 5:
		ev_hang_up(p);
		break;
	case 6:
		ev_process_ends(p);
		break;
	case 7:
		(void)client_timers(&inproc->clients, kv_now_ns() +
				    (u64)fuzz_u8(f) * NSEC_PER_SEC / 8);
		break;
	default:
		if (p->sock >= 0)
			ev_message(f, p, b >> 3);
	}
	free_dead();
	inproc_threads(0);
	inproc_turn();
	client_take_notes(&inproc->clients);
	free_dead();
}

static void end_all(void)
{
	struct core_client_view v;
	struct list *heads[] = { &inproc->clients.greeting, &inproc->clients.attached };
	struct list *l, *tmp;
	u32 i;

	for (i = 0; i < PEERS; i++)
		if (peers[i].c)
			ev_hang_up(&peers[i]);
	free_dead();
	for (i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each(heads[i], l, tmp) {
			struct client *c = list_entry(l, struct client, node);

			if (c->mm.id == CORE_NONE)
				client_drop(&inproc->clients, c);
			else
				client_on_pidfd(&inproc->clients, &c->pidfd, EPOLLIN);
		}
	free_dead();
	for (i = 0; i < PEERS; i++)
		FUZZ_LAW(!peers[i].c, "peer %u is still known", i);
	FUZZ_LAW(!inproc->clients.nr_greeting, "%u greet", inproc->clients.nr_greeting);
	for (i = 0; !core_get_client(inproc->setup.core, i, &v) ||
	     i < inproc->setup.cfg.max_clients; i++)
		FUZZ_LAW(core_get_client(inproc->setup.core, i, &v),
			 "the core still knows client %u", i);
	ghost_exit_all(&inproc->clients);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	u32 i, fds;

	inproc_begin(NULL);
	for (i = 0; i < PEERS; i++)
		peers[i] = (struct peer){ .sock = -1 };
	close(inproc_some_fd(0));
	/* Count now: between two inputs a fuzzer opens files of its own. */
	fds = fuzz_count_fds(0);
	for (i = 0; f.left && i < EVENTS; i++)
		play(&f);
	inproc_check();
	end_all();
	inproc_check();
	FUZZ_LAW(fuzz_count_fds(0) == fds, "%u descriptors, not %u",
		 fuzz_count_fds(0), fds);
	return 0;
}
