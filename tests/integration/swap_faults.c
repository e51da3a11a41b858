// SPDX-License-Identifier: Apache-2.0
/*
 * swap_faults.c - a disk that lies, under a kvmm that knows the right content
 *
 * The scene knows the right content of every place of the area, writes and
 * reads at random, and trusts swapd's answers: a block reported as written is
 * there, an unreadable block is lost and recomputed.  So it detects
 *
 *	a wrong block served	every word of a read block is compared
 *	a request that hangs	it waits for all of them, at the end
 *	a leaked slot		every host slot and place is used to the end
 *	a late transfer		host slots that came back carry a mark
 *	a false alarm		reads find no more faults than were made
 *
 * Identities are as similar as the core may make them: one domain, one owner's
 * hash, generations that count up at each place separately.  So only one check
 * of swapd can find each kind of lie: two places differ only in the offset, two
 * writes of a place only in the generation.
 *
 * The shim in swapd lies, or a file does.  Both keep a tally (SCENE_TALLY),
 * which the scene reads.  At the end it switches the lies off: then all content
 * must be right again.
 */
#include "tests/integration/swap_scenes.h"

#include "swapd/shim.h"

#define HOSTS		48
#define PLACES		192
#define PLACE_BYTES	(64u << 10)
#define MARK(h)		(0x6d61726b00000000ull + (h))
#define BATCH		24
#define RUN		6	/* neighbours requested at once, at most */
#define HANG_NS		60000000000ull

struct place {
	u64	generation;
	u32	len;
	bool	valid;
	bool	busy;
};

struct host {
	u32	place;
	bool	busy;
	bool	marked;
};

/* Results of the requests. */
struct sums {
	u32	requests;
	u32	right;		/* reads that brought the block written */
	u32	bad;		/* reads that found another content */
	u32	failed;		/* transfers that failed */
	u32	again;		/* blocks to be recomputed */
	u32	unnamed;	/* requests ended by a death of swapd */
};

static struct place place[PLACES];
static struct host host[HOSTS];
static struct sums sum;
static struct shim_tally *tally;

static u8 *host_slot(struct scene *s, const struct host *h)
{
	return s->c.pool + (u64)(h - host) * PLACE_BYTES;
}

static u64 place_seed(u32 p)
{
	return (u64)p << 40 | place[p].generation;
}

static void host_mark(struct scene *s, struct host *h)
{
	u64 *w = (u64 *)host_slot(s, h);
	u32 i;

	for (i = 0; i < PLACE_BYTES / 8; i += 8)
		w[i] = MARK(h - host);
	h->marked = true;
}

static void host_check(struct scene *s, struct host *h)
{
	const u64 *w = (const u64 *)host_slot(s, h);
	u32 i;

	for (i = 0; h->marked && i < PLACE_BYTES / 8; i += 8)
		scene_check(w[i] == MARK(h - host),
			    "late transfer: host slot %u is written at %u after its request had ended",
			    (u32)(h - host), i * 8);
	h->marked = false;
}

/* ---- requests ---- */

static struct swapd_req place_req(u32 op, u32 h, u32 p)
{
	return (struct swapd_req){
		.op = op,
		.host_off = (u64)h * PLACE_BYTES,
		.area_off = SWAPD_RESERVED_BYTES + (u64)p * PLACE_BYTES,
		.len = place[p].len,
		.payload_len = place[p].len - SWAPD_HEADER_BYTES,
		.domain = 1,
		.hash = { 7, 7 },
		.generation = place[p].generation,
	};
}

static void read_ended(struct scene *s, struct host *h, int status)
{
	struct place *p = &place[h->place];

	if (status) {
		sum.bad += status == -EBADMSG;
		sum.failed += status != -EBADMSG;
		sum.again++;
		p->valid = false;
		return;
	}
	sum.right++;
	scene_check(scene_is(host_slot(s, h) + SWAPD_HEADER_BYTES,
			     p->len - SWAPD_HEADER_BYTES,
			     place_seed(h->place)),
		    "wrong block served: place %u, generation %llu", h->place,
		    (unsigned long long)p->generation);
}

static void faults_done(struct swapc *c, const struct swapd_req *req,
			void *arg, enum sc_how how, int status)
{
	struct scene *s = container_of(c, struct scene, c);
	struct host *h = arg;

	sum.requests++;
	place[h->place].busy = false;
	if (how != SC_COMPLETED) {
		sum.unnamed++;
		if (req->op == SWAPD_WRITE)
			place[h->place].valid = false;
	} else if (req->op == SWAPD_READ) {
		read_ended(s, h, status);
	} else {
		place[h->place].valid = !status;
		sum.failed += status != 0;
	}
	h->busy = false;
	host_mark(s, h);
}

static void submit(struct scene *s, u32 op, u32 h, u32 p)
{
	struct swapd_req r;

	host_check(s, &host[h]);
	host[h].place = p;
	host[h].busy = true;
	place[p].busy = true;
	if (op == SWAPD_WRITE) {
		place[p].generation++;
		place[p].valid = false;
	}
	r = place_req(op, h, p);
	if (op == SWAPD_WRITE)
		scene_fill(host_slot(s, &host[h]) + SWAPD_HEADER_BYTES,
			   r.payload_len, place_seed(p));
	else
		/* The host slot may still hold the very block that is read. */
		scene_fill(host_slot(s, &host[h]) + SWAPD_HEADER_BYTES, 4096,
			   place_seed(p));
	sc_submit(&s->c, &r, &host[h]);
}

static bool submit_one(struct scene *s, u32 h, u32 p, bool read)
{
	if (h >= HOSTS || p >= PLACES || host[h].busy || place[p].busy ||
	    !sc_ready(&s->c))
		return false;
	submit(s, place[p].valid && read ? SWAPD_READ : SWAPD_WRITE, h, p);
	return true;
}

/* One request, or several for idle neighbours, which may share a transfer. */
static void submit_any(struct scene *s)
{
	u32 h = scene_random(s, HOSTS), p = scene_random(s, PLACES), i;
	const u32 nr = scene_random(s, 2) ? 1 + scene_random(s, RUN) : 1;
	const bool read = scene_random(s, 5) < 3;

	for (i = 0; i < HOSTS && host[h].busy; i++)
		h = (h + 1) % HOSTS;
	for (i = 0; i < nr; i++)
		if (!submit_one(s, h + i, p + i, read))
			return;
}

/* ---- the tally ---- */

static void tally_open(void)
{
	const char *path = getenv("SCENE_TALLY");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	scene_check(fd >= 0, "there is no tally: %s", path ? path : "");
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED,
		     fd, 0);
	scene_check(tally != MAP_FAILED, "tally: %s", strerror(errno));
	close(fd);
}

static u64 done_of(u32 kind)
{
	return __atomic_load_n(&tally->done[kind], __ATOMIC_RELAXED);
}

static u64 done_all(void)
{
	u64 n = 0;
	u32 i;

	for (i = 0; i < NR_SHIM_KINDS; i++)
		n += done_of(i);
	return n;
}

/* Reads that may find a fault, by the tally. */
static u64 bad_at_most(void)
{
	static const u32 once[] = {
		SHIM_torn, SHIM_lost, SHIM_hollow, SHIM_astray_read, SHIM_late,
		SHIM_flip_header, SHIM_flip_payload, SHIM_rot_header,
		SHIM_rot_payload,
	};
	u64 n = 3 * done_of(SHIM_astray_write);
	u32 i;

	/* A stray write is missing at its place, and damages two others. */
	for (i = 0; i < ARRAY_SIZE(once); i++)
		n += done_of(once[i]);
	return n;
}

/* Exact counts must agree, unless a death of swapd loses some. */
static void expect_counts(struct scene *s)
{
	const struct swapc *c = &s->c;

	scene_check(sc_counter(c, SWAPD_CNT_merged), "no request shared a transfer");
	scene_check(sum.bad <= bad_at_most(),
		    "%u reads were found bad, %llu can be", sum.bad,
		    (unsigned long long)bad_at_most());
	if (c->nr_down || getenv(SCENE_AREA))
		return;
	scene_check(sc_counter(c, SWAPD_CNT_io_nospace) == done_of(SHIM_enospc) &&
		    sc_counter(c, SWAPD_CNT_io_short) == done_of(SHIM_cut) &&
		    sc_counter(c, SWAPD_CNT_io_errors) ==
		    done_of(SHIM_eio) + done_of(SHIM_enospc),
		    "transfers that failed are miscounted");
}

#define FOUND(x)							\
	x(io_errors) x(io_short) x(io_nospace) x(slow) x(bad_magic)	\
	x(bad_header_crc) x(bad_area) x(bad_offset) x(bad_domain)	\
	x(bad_generation) x(bad_length) x(bad_payload_crc) x(merged) x(split)

static void tell(struct scene *s)
{
	u32 i;

	fprintf(stderr, FAULTS_TALLY "\n", (unsigned long long)done_all(),
		sum.requests, sum.right, sum.bad, sum.failed, sum.again,
		s->c.nr_down);
	fprintf(stderr, "faults done:");
	for (i = 0; i < NR_SHIM_KINDS; i++)
		fprintf(stderr, " %s %llu", shim_kind_name(i),
			(unsigned long long)done_of(i));
	fprintf(stderr, "\nfaults found:");
#define x(name) fprintf(stderr, " " #name " %llu", (unsigned long long)	\
			sc_counter(&s->c, SWAPD_CNT_##name));
	FOUND(x)
#undef x
	fprintf(stderr, "\n");
}

/* ---- the scene ---- */

static void settle(struct scene *s)
{
	u64 end = sc_now_ns() + HANG_NS;

	do {
		scene_check(sc_now_ns() < end && !s->c.gone, "no swapd");
		scene_check(sc_quiet(&s->c, 60000),
			    "%u requests out, %u in limbo: for ever",
			    s->c.nr_out, s->c.nr_limbo);
		sc_await_serving(&s->c);
	} while (!scene_area_again(s));
}

/* The disk is honest: every place is written, then read, and must be right. */
static void heal(struct scene *s)
{
	u32 bad, right, op, p;

	WRITE_ONCE(tally->off, 1);
	settle(s);
	bad = sum.bad + sum.failed;
	right = sum.right;
	for (op = SWAPD_WRITE; op >= SWAPD_READ; op--) {
		for (p = 0; p < PLACES; p++) {
			if (p % HOSTS == 0)
				settle(s);
			submit(s, op, p % HOSTS, p);
			sc_kick(&s->c);
		}
		settle(s);
	}
	scene_check(sum.bad + sum.failed == bad &&
		    sum.right == right + PLACES,
		    "the disk is honest again, and %u requests are not right",
		    sum.bad + sum.failed - bad);
}

static void kill_some(struct scene *s)
{
	static u64 next;
	u64 now = sc_now_ns();

	if (!getenv("SCENE_KILLS") || s->c.control < 0)
		return;
	if (!next)
		next = now + 1000000ull * (5 + scene_random(s, 25));
	if (now < next)
		return;
	next = 0;
	kill(s->c.pid, SIGKILL);
}

/* Go on until @n faults were made. */
void scene_faults(struct scene *s)
{
	u64 end = sc_now_ns() + HANG_NS, before = 0, n;
	u32 i;

	scene_open(s, 64, 32, (u64)HOSTS * PLACE_BYTES,
		   SWAPD_RESERVED_BYTES + (u64)PLACES * PLACE_BYTES);
	tally_open();
	s->c.done = faults_done;
	s->c.praise = true;
	s->c.apart = true;
	/* Half of the blocks have full length: these may get to each other's places. */
	for (i = 0; i < PLACES; i++)
		place[i].len = i < PLACES / 2 ? PLACE_BYTES :
			       SWAPD_ALIGN * (2 + scene_random(s, 14));
	while ((n = done_all()) < s->n) {
		/* As long as faults are made the scene does not hang. */
		if (n != before)
			end = sc_now_ns() + HANG_NS;
		before = n;
		scene_check(sc_now_ns() < end, "%llu faults, and no more",
			    (unsigned long long)n);
		if (scene_area_again(s)) {
			for (i = scene_random(s, BATCH); i; i--)
				submit_any(s);
			sc_kick(&s->c);
			kill_some(s);
		}
		sc_poll(&s->c, s->c.nr_out ? 5 : 1);
	}
	heal(s);
	for (i = 0; i < HOSTS; i++)
		host_check(s, &host[i]);
	scene_check(s->c.nr_free == s->c.entries, "%u requests are lost",
		    s->c.entries - s->c.nr_free);
	tell(s);
	expect_counts(s);
}
