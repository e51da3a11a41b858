// SPDX-License-Identifier: Apache-2.0
/*
 * hostile.c - a program that means harm: its processes
 *
 * The main process attacks the sockets and keeps a few sessions going, each a
 * child with one attachment.  A session that stopped itself is continued after
 * a while, unless the daemon has killed it meanwhile.  All numbers come from
 * the seed of the test; each process has its own generator.
 *
 * Another user cannot reach the rig's directory.  Its process gets a descriptor
 * of the attach socket, opened with O_PATH, and connects through /proc/self/fd.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/hostile.h"

#define SESSIONS	3	/* at once */
#define SESSION_MS	3000	/* the longest */
#define DOMAINS		3
#define MORE_MS		10000

struct session {
	pid_t	pid;
	u64	end_ms;		/* time to kill it */
	u64	cont_ms;	/* time to continue it, 0: it runs */
};

const char *hostile_words(enum hostile_kind kind)
{
	static const char *const words[] = {
#define x(name, text)	text,
		HOSTILE_ALL(x)
#undef x
	};

	return words[kind];
}

u32 hostile_below(struct hostile *h, u32 n)
{
	h->rng = h->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((h->rng >> 33) % n);
}

void hostile_fill(struct hostile *h, void *buf, size_t bytes)
{
	u8 *p = buf;

	while (bytes--)
		*p++ = (u8)hostile_below(h, 256);
}

void hostile_count(struct hostile *h, enum hostile_kind kind)
{
	__atomic_fetch_add(&h->counts->done[kind], 1, __ATOMIC_RELAXED);
}

void hostile_breach(struct hostile *h, const char *what)
{
	if (!__atomic_fetch_add(&h->counts->breaches, 1, __ATOMIC_RELAXED))
		snprintf(h->counts->breach, sizeof(h->counts->breach), "%s",
			 what);
}

static u32 undone(const struct hostile *h, u32 first, u32 nr)
{
	u32 n = 0, i;

	for (i = first; i < first + nr; i++)
		n += !READ_ONCE(h->counts->done[i]);
	return n;
}

u32 hostile_draw(struct hostile *h, u32 first, u32 nr)
{
	u32 n = undone(h, first, nr), i;

	if (!n || hostile_below(h, 2))
		return first + hostile_below(h, nr);
	n = hostile_below(h, n);
	for (i = first; i < first + nr; i++)
		if (!READ_ONCE(h->counts->done[i]) && !n--)
			return i;
	/* Other processes did these kinds meanwhile. */
	return first;
}

/* ---- sessions ---- */

static void hostile_session(struct hostile *h)
{
	u32 nr = 1 + hostile_below(h, 8);
	struct kvmm_attach_req req;
	struct wire w;
	char domain[32];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(domain, sizeof(domain), "hostile-%u-%u", h->uid,
		 hostile_below(h, DOMAINS));
	wire_request(&req, domain);
	if (wire_attach(&w, h->attach, &req)) {
		__atomic_fetch_add(&h->counts->refused, 1, __ATOMIC_RELAXED);
		_exit(0);
	}
	__atomic_fetch_add(&h->counts->sessions, 1, __ATOMIC_RELAXED);
	while (nr-- && wire_alive(&w))
		if (!hostile_ring_attack(h, &w))
			break;
	if (load_acquire(&w.dctl->state) == KVMM_CLIENT_EXPELLED)
		__atomic_fetch_add(&h->counts->expelled, 1, __ATOMIC_RELAXED);
	if (wire_alive(&w) && hostile_below(h, 2))
		wire_call(&w, KVMM_OP_DETACH, 0, NULL, 0, NULL, 0);
	if (hostile_below(h, 2))
		_exit(0);
	wire_close(&w);
	nap_ms(hostile_below(h, 200));
	_exit(0);
}

static void session_start(struct hostile *h, struct session *s)
{
	u64 seed = (u64)hostile_below(h, UINT32_MAX) << 32 |
		   hostile_below(h, UINT32_MAX);

	s->end_ms = now_ms() + SESSION_MS;
	s->cont_ms = 0;
	s->pid = fork();
	if (s->pid)
		return;
	h->rng = seed;
	hostile_session(h);
}

static void session_poll(struct hostile *h, struct session *s)
{
	int status;

	if (s->pid <= 0) {
		session_start(h, s);
		return;
	}
	if (waitpid(s->pid, &status, WNOHANG | WUNTRACED) == s->pid) {
		if (!WIFSTOPPED(status))
			s->pid = 0;
		else
			s->cont_ms = now_ms() + hostile_below(h, 1200);
	} else if (now_ms() > s->end_ms) {
		kill(s->pid, SIGKILL);
	} else if (s->cont_ms && now_ms() > s->cont_ms) {
		s->cont_ms = 0;
		kill(s->pid, SIGCONT);
	}
}

/* ---- the main process ---- */

/* Go on after the end while a kind is missing, for some more time. */
static bool goes_on(const struct hostile *h)
{
	u64 now = now_ms();

	if (now < h->end_ms)
		return true;
	return h->last && now < h->end_ms + MORE_MS * time_scale() &&
	       (h->uid ? undone(h, HOSTILE_NR_RING + HOSTILE_NR_OWN,
				HOSTILE_NR_SOCK + HOSTILE_NR_FOREIGN) :
			 undone(h, 0, HOSTILE_foreign));
}

static void hostile_main(struct hostile *h)
{
	struct session s[SESSIONS] = { { 0 } };
	u32 i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	while (goes_on(h)) {
		for (i = 0; i < SESSIONS; i++)
			session_poll(h, &s[i]);
		hostile_sock_attack(h);
		nap_ms(hostile_below(h, 6));
	}
	for (i = 0; i < SESSIONS; i++) {
		if (s[i].pid <= 0)
			continue;
		kill(s[i].pid, SIGKILL);
		waitpid(s[i].pid, NULL, 0);
	}
	_exit(0);
}

/* Become another user, with nothing but descriptors of the sockets. */
static int hostile_change_user(struct hostile *h)
{
	int fd = open(h->attach, O_PATH);

	if (fd < 0 || setgid(h->uid) || setuid(h->uid))
		return -errno;
	/* Otherwise the kernel denies this process its own /proc/self/fd. */
	prctl(PR_SET_DUMPABLE, 1);
	snprintf(h->attach, sizeof(h->attach), "/proc/self/fd/%d", fd);
	return 0;
}

static int path_fd(const char *path)
{
	return open(path, O_PATH);
}

void hostile_start(struct hostile *h, struct rig *r,
		   struct hostile_counts *counts, uid_t uid, u32 ms, bool last)
{
	u32 i;
	int view, admin;

	memset(h, 0, sizeof(*h));
	h->uid = uid;
	h->counts = counts;
	h->rng = (u64)random_below(1u << 30) << 30 | random_below(1u << 30);
	h->end_ms = now_ms() + ms;
	h->last = last;
	for (i = 0; i < HOSTILE_HELD; i++)
		h->held[i] = -1;
	snprintf(h->attach, sizeof(h->attach), "%s/attach.sock", r->dir);
	snprintf(h->view, sizeof(h->view), "%s/view.sock", r->dir);
	snprintf(h->admin, sizeof(h->admin), "%s/admin.sock", r->dir);
	fflush(stdout);
	h->pid = fork();
	ck_assert_int_ge(h->pid, 0);
	if (h->pid)
		return;
	if (uid) {
		view = path_fd(h->view);
		admin = path_fd(h->admin);
		if (view < 0 || admin < 0 || hostile_change_user(h))
			_exit(1);
		snprintf(h->view, sizeof(h->view), "/proc/self/fd/%d", view);
		snprintf(h->admin, sizeof(h->admin), "/proc/self/fd/%d",
			 admin);
	}
	hostile_main(h);
}

void hostile_finish(struct hostile *h)
{
	struct job j = { .pid = h->pid };

	/* The text of a failure quotes this file; there is none. */
	snprintf(j.err, sizeof(j.err), "/dev/null");
	ck_assert_int_eq(job_wait(&j, 60 + MORE_MS / 1000 * time_scale()), 0);
}
