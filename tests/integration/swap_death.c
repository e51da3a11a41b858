// SPDX-License-Identifier: Apache-2.0
/*
 * swap_death.c - swapd is killed under load, and so is kvmm
 *
 * The storm knows the right content of every slot of the area, and keeps a mark
 * in every free host slot.  So it detects
 *
 *   - a request that never ends (it waits for all of them);
 *   - a transfer that goes on after its slot was given back: a late read
 *     overwrites the mark in the host slot; a late write of a marked host slot,
 *     or of an older generation, makes the area's slot bad;
 *   - a completion that lies: each block reported as written is read again, also
 *     if only hold's raw completion reported it; a request that hold declared
 *     not issued must have left the older generation whole.
 */
#include "tests/integration/swap_scenes.h"

#define HOSTS		48
#define AREAS		160
#define SLOT_BYTES	(256u << 10)
#define RUN		6	/* neighbours requested at once, at most */
#define MARK(h)		(0x6d61726b00000000ull + (h))
#define FULL_CHECK_EVERY 4

struct area_slot {
	u64	generation;
	u64	seed;
	u32	len;
	bool	valid;
	bool	busy;
	bool	limbo;		/* given back after a death */
};

struct host_slot {
	struct area_slot	before;	/* of the area's slot, for a write */
	u32			area;
	bool			busy;
	bool			marked;
	bool			limbo;		/* as above */
};

static struct area_slot area[AREAS];
static struct host_slot host[HOSTS];
static u64 next_generation;
static u32 nr_limbo;		/* requests that were unfinished at a death */
static u32 nr_host_again;	/* their host slots used again later */
static u32 nr_area_again;	/* and their area slots */

static u8 *host_payload(struct scene *s, u32 h)
{
	return s->c.pool + (u64)h * SLOT_BYTES + SWAPD_HEADER_BYTES;
}

static void host_mark(struct scene *s, u32 h)
{
	u64 *w = (u64 *)(s->c.pool + (u64)h * SLOT_BYTES);
	u32 i;

	for (i = 0; i < SLOT_BYTES / 8; i++)
		w[i] = MARK(h);
	host[h].marked = true;
}

static void host_check(struct scene *s, u32 h)
{
	const u64 *w = (const u64 *)(s->c.pool + (u64)h * SLOT_BYTES);
	u32 i;

	for (i = 0; host[h].marked && i < SLOT_BYTES / 8; i++)
		scene_check(w[i] == MARK(h),
			    "late write: host slot %u at %u was given back and is written",
			    h, i * 8);
}

/* ---- ends of requests ---- */

static void write_ended(struct scene *s, struct host_slot *h, enum sc_how how,
			int status)
{
	struct area_slot *a = &area[h->area];

	switch (how) {
	case SC_COMPLETED:
		scene_check(!status, "write: %s", strerror(-status));
		a->valid = true;
		break;
	case SC_OLD:
		/*
		 * Or an error, such as -ECANCELED for a request that waited for
		 * a thread.
		 */
		a->valid = status == (int)a->len;
		break;
	case SC_DRAINED:
		/* With threads, the transfer may have been half done. */
		if (s->c.engine == SWAPD_ENGINE_URING)
			*a = h->before;
		else
			a->valid = false;
		break;
	}
	a->busy = false;
}

static void read_ended(struct scene *s, struct host_slot *h, enum sc_how how,
		       int status)
{
	struct area_slot *a = &area[h->area];
	u32 n = (u32)(h - host);

	a->busy = false;
	if (how != SC_COMPLETED)
		return;
	scene_check(!status, "area slot %u, generation %llu: %s", h->area,
		    (unsigned long long)a->generation, strerror(-status));
	scene_check(scene_is(host_payload(s, n),
			     a->len - SWAPD_HEADER_BYTES - (u32)(a->seed % 7),
			     a->seed), "area slot %u: wrong block", h->area);
}

static void storm_done(struct swapc *c, const struct swapd_req *req, void *arg,
		       enum sc_how how, int status)
{
	struct scene *s = container_of(c, struct scene, c);
	struct host_slot *h = arg;

	if (req->op == SWAPD_WRITE)
		write_ended(s, h, how, status);
	else
		read_ended(s, h, how, status);
	h->busy = false;
	if (how != SC_COMPLETED) {
		nr_limbo++;
		h->limbo = true;
		area[h->area].limbo = true;
	}
	/* From now on no transfer may touch the slot. */
	host_mark(s, (u32)(h - host));
	s->nr_done++;
}

/* ---- load ---- */

/* @whole: as long as its slot, so that its neighbours may share its transfer. */
static void storm_write(struct scene *s, u32 h, u32 a, bool whole)
{
	struct area_slot *slot = &area[a];
	struct swapd_req r;

	host[h].before = *slot;
	slot->generation = ++next_generation;
	slot->seed = scene_random(s, 1u << 20);
	slot->len = whole ? SLOT_BYTES : SWAPD_ALIGN *
		    (2 + scene_random(s, SLOT_BYTES / SWAPD_ALIGN - 1));
	slot->valid = false;
	slot->busy = true;
	host[h].area = a;
	r = scene_req(s, SWAPD_WRITE, (u64)h * SLOT_BYTES, (u64)a * SLOT_BYTES,
		      slot->len, slot->seed, slot->generation);
	scene_fill(host_payload(s, h), r.payload_len, slot->seed);
	sc_submit(&s->c, &r, &host[h]);
}

static void storm_read(struct scene *s, u32 h, u32 a)
{
	struct area_slot *slot = &area[a];
	struct swapd_req r;

	slot->busy = true;
	host[h].area = a;
	r = scene_req(s, SWAPD_READ, (u64)h * SLOT_BYTES, (u64)a * SLOT_BYTES,
		      slot->len, slot->seed, slot->generation);
	sc_submit(&s->c, &r, &host[h]);
}

/* A request between a host slot and an area slot, if both are idle. */
static bool storm_request(struct scene *s, u32 h, u32 a, bool read, bool whole)
{
	if (h >= HOSTS || a >= AREAS || host[h].busy || area[a].busy ||
	    !sc_ready(&s->c))
		return false;
	host_check(s, h);
	nr_host_again += host[h].limbo;
	nr_area_again += area[a].limbo;
	host[h].limbo = false;
	area[a].limbo = false;
	host[h].marked = false;
	host[h].busy = true;
	if (area[a].valid && read)
		storm_read(s, h, a);
	else
		storm_write(s, h, a, whole);
	return true;
}

/* Requests for neighbours, upwards or downwards, as far as they are idle. */
static void storm_run(struct scene *s)
{
	u32 h = scene_random(s, HOSTS), a = scene_random(s, AREAS), i;
	const bool read = scene_random(s, 2), whole = scene_random(s, 4);
	const u32 nr = 1 + scene_random(s, RUN), step = scene_random(s, 2) ?
						       1 : -1u;

	for (i = 0; i < HOSTS && host[h].busy; i++)
		h = (h + 1) % HOSTS;
	for (i = 0; i < nr; i++)
		if (!storm_request(s, h + i * step, a + i * step, read, whole))
			return;
}

static void storm_kill(struct scene *s)
{
	static u64 next;
	u64 now = sc_now_ns();

	if (!next)
		next = now + 1000000ull * (1 + scene_random(s, 40));
	if (now < next || s->c.control < 0)
		return;
	next = 0;
	/* Sometimes the next swapd is killed before its first message. */
	s->c.kill_at_up = !scene_random(s, 6);
	kill(s->c.pid, SIGKILL);
}

static void storm_settle(struct scene *s)
{
	u32 i;

	s->c.kill_at_up = false;
	scene_check(sc_quiet(&s->c, 120000), "%u requests out, %u in limbo: for ever",
		    s->c.nr_out, s->c.nr_limbo);
	/* The last swapd may have been killed a moment ago. */
	do {
		sc_await_serving(&s->c);
		sc_poll(&s->c, 50);
	} while (!scene_area_again(s));
	for (i = 0; i < HOSTS; i++)
		host_check(s, i);
	for (i = 0; i < AREAS; i++) {
		if (!area[i].valid)
			continue;
		host[i % HOSTS].marked = false;
		host[i % HOSTS].busy = true;
		storm_read(s, i % HOSTS, i);
		sc_kick(&s->c);
		scene_check(sc_quiet(&s->c, 20000), "reading back hangs");
	}
}

/* @n deaths, by a signal from here or by a fault point in swapd. */
void scene_storm(struct scene *s)
{
	const bool faults = getenv("KVMM_FAULT");
	u64 end = sc_now_ns() + 100000000000ull;
	u32 i;

	scene_open(s, 64, 32, (u64)HOSTS * SLOT_BYTES,
		   SWAPD_RESERVED_BYTES + (u64)AREAS * SLOT_BYTES);
	s->c.done = storm_done;
	s->c.apart = true;
	s->c.praise = true;
	while (s->c.nr_down < s->n) {
		scene_check(sc_now_ns() < end, "%u deaths in 100 s, %u in limbo",
			    s->c.nr_down, s->c.nr_limbo);
		if (scene_area_again(s)) {
			for (i = scene_random(s, HOSTS); i; i--)
				storm_run(s);
			sc_kick(&s->c);
			if (!faults)
				storm_kill(s);
		}
		sc_poll(&s->c, s->c.nr_out == HOSTS ? 5 : 1);
	}
	if (faults) {
		/* The current swapd may die at a fault point, too. */
		for (i = 0; i < 200 && s->c.nr_limbo; i++)
			sc_poll(&s->c, 50);
		scene_check(!s->c.nr_limbo, "%u in limbo for ever",
			    s->c.nr_limbo);
		return;
	}
	storm_settle(s);
	fprintf(stderr, STORM_TALLY "\n", s->c.nr_down, s->nr_done, nr_limbo,
		nr_host_again, nr_area_again, s->c.nr_old_shared,
		(u32)sc_counter(&s->c, SWAPD_CNT_merged));
	fprintf(stderr, "%u completed, %u by old completions, %u not issued\n",
		s->c.ended[SC_COMPLETED], s->c.ended[SC_OLD],
		s->c.ended[SC_DRAINED]);
}

/* ---- swapoff under load ---- */

static void del_done(struct swapc *c, const struct swapd_req *req, void *arg,
		     enum sc_how how, int status)
{
	struct scene *s = container_of(c, struct scene, c);

	scene_check(how == SC_COMPLETED && (!status || status == -ENXIO),
		    "%u: %s", how, strerror(-status));
	s->nr_done += !status;
}

/* An area is removed with requests under way: each succeeds or is refused. */
void scene_del(struct scene *s)
{
	struct swapd_answer a;
	struct swapd_req r;
	u32 round, i;
	u64 writes;

	scene_open(s, 64, 16, 64ull * SLOT_BYTES,
		   SWAPD_RESERVED_BYTES + 64ull * SLOT_BYTES);
	s->c.done = del_done;
	s->c.apart = true;
	for (round = 0; round < s->n; round++) {
		for (i = 0; i < 64; i++) {
			r = scene_req(s, SWAPD_WRITE, (u64)i * SLOT_BYTES,
				      (u64)i * SLOT_BYTES, SLOT_BYTES, i, round);
			sc_submit(&s->c, &r, NULL);
		}
		sc_kick(&s->c);
		scene_check(!sc_area_del(&s->c, 0, &a), "del: %s", a.text);
		writes = sc_counter(&s->c, SWAPD_CNT_writes);
		scene_check(sc_quiet(&s->c, 20000), "requests without an answer");
		scene_check(writes == sc_counter(&s->c, SWAPD_CNT_writes),
			    "written after the area was gone");
		scene_check(sc_area_del(&s->c, 0, &a) == -ENXIO, "del twice");
		scene_check(!sc_area_add(&s->c, 0, s->area_fd, s->area_bytes, 0,
					 NULL, &a), "add: %s", a.text);
		scene_check(memcmp(a.uuid, s->area.uuid, SWAPD_UUID_LEN),
			    "a new area with the old uuid");
		s->area = a;
	}
	fprintf(stderr, "del: %u of %u were done\n", s->nr_done, 64 * s->n);
}

/* ---- other deaths ---- */

static void any_done(struct swapc *c, const struct swapd_req *req, void *arg,
		     enum sc_how how, int status)
{
}

/*
 * kvmm dies with requests in flight, @n times.  Each time swapd ends, and the
 * next kvmm finds only the descriptor of the area's file, and a new swapd that
 * was started when the old one's transfers were over.
 */
void scene_reborn(struct scene *s)
{
	int count = scene_file(s, "lives", O_RDWR | O_CREAT | O_APPEND);
	const char *waits = getenv("SCENE_WAITS_MS");
	const char *scale = getenv("KVMM_TIME_SCALE");
	struct stat st;
	struct swapd_req r;
	u64 start = sc_now_ns();
	u32 i, kept;

	scene_check(!fstat(count, &st) && write(count, "x", 1) == 1, "count");
	kept = sc_open(&s->c, 64, 64ull * SLOT_BYTES,
		       HOLD_SWAP_VALUE(32, s->engine, 3, 500), any_done);
	scene_check(kept == (st.st_size > 0), "%u records kept", kept);
	start = (sc_now_ns() - start) / 1000000;
	scene_check(!kept || !waits || start >= (u64)atoi(waits),
		    "the next swapd came after %llu ms",
		    (unsigned long long)start);
	/* The file is locked through the descriptor that hold kept. */
	s->area_fd = kept ? s->c.kept_area :
			    scene_file(s, "area", O_RDWR | O_CREAT);
	s->area_bytes = SWAPD_RESERVED_BYTES + 64ull * SLOT_BYTES;
	scene_check(!sc_area_add(&s->c, 0, s->area_fd, s->area_bytes, 0, NULL,
				 &s->area), "area: %s", s->area.text);
	sc_put(&s->c, HOLD_SWAP_AREA, 0, s->area_bytes, s->area_fd);
	for (i = 0; i < 64; i++) {
		r = scene_req(s, SWAPD_WRITE, (u64)i * SLOT_BYTES,
			      (u64)i * SLOT_BYTES, SLOT_BYTES, i, 1);
		sc_submit(&s->c, &r, NULL);
	}
	sc_kick(&s->c);
	fprintf(stderr, "reborn: up after %llu ms, swapd pid %d\n",
		(unsigned long long)start, s->c.pid);
	/* On a slow disk: wait until the kernel has as many requests as it takes. */
	if (waits)
		usleep(30000 * (scale ? (u32)atoi(scale) : 1));
	if ((u64)st.st_size < s->n)
		kill(getpid(), SIGKILL);
	scene_check(sc_quiet(&s->c, 60000), "requests without an answer");
}

/* A swapd that ends with an error is not started again. */
void scene_ended(struct scene *s)
{
	struct swapd_msg m = { .op = SWAPD_AREA_DEL, .magic = 1 };
	u32 i;

	scene_open(s, 8, 8, 1u << 20, 0);
	scene_check(!sc_send(s->c.control, &m, sizeof(m), -1), "send");
	for (i = 0; i < 100 && !s->c.nr_drained; i++)
		sc_poll(&s->c, 100);
	scene_check(s->c.gone && s->c.nr_drained == 1, "not told that it ended");
	for (i = 0; i < 5; i++)
		sc_poll(&s->c, 50);
	scene_check(s->c.control < 0, "started again");
	/* A new request to hold starts it. */
	s->c.gone = false;
	sc_put(&s->c, HOLD_SWAP_RUN, ++s->c.run, s->c.value, -1);
	sc_await_serving(&s->c);
	/* Other parameters need another swapd. */
	i = s->c.generation;
	s->c.value = HOLD_SWAP_VALUE(4, SWAPD_ENGINE_SYNC, 2, 0);
	sc_put(&s->c, HOLD_SWAP_RUN, ++s->c.run, s->c.value, -1);
	while (s->c.generation == i || !s->c.serving)
		sc_poll(&s->c, 50);
	scene_check(s->c.engine == SWAPD_ENGINE_SYNC && s->c.depth == 2,
		    "not what was asked for");
}

/*
 * A stopped kvmm leaves more old completions than fit into its socket: hold
 * keeps them, and goes on with its other duties.
 */
void scene_deaf(struct scene *s)
{
	const u32 nr = 1000, len = 2 * SWAPD_ALIGN;
	struct swapd_req r;
	u32 i;

	sc_open(&s->c, 1024, (u64)nr * len,
		HOLD_SWAP_VALUE(1024, s->engine, 3, 0), any_done);
	s->area_fd = scene_file(s, "area", O_RDWR | O_CREAT);
	scene_check(!sc_area_add(&s->c, 0, s->area_fd, 64u << 20, 0, NULL,
				 &s->area), "area: %s", s->area.text);
	for (i = 0; i < nr; i++) {
		r = scene_req(s, SWAPD_WRITE, (u64)i * len, (u64)i * len, len,
			      i, 1);
		sc_submit(&s->c, &r, NULL);
	}
	sc_kick(&s->c);
	/* A stopped swapd takes no completions, and a killed one never will. */
	while (!sc_counter(&s->c, SWAPD_CNT_submits) && s->engine !=
	       SWAPD_ENGINE_SYNC && !READ_ONCE(s->c.ctl->cpl_tail))
		;
	kill(s->c.pid, SIGSTOP);
	kill(s->c.pid, SIGKILL);
	usleep(300000);
	scene_check(sc_quiet(&s->c, 20000), "%u out, %u in limbo", s->c.nr_out,
		    s->c.nr_limbo);
	sc_await_serving(&s->c);
	fprintf(stderr, "deaf: %u completed, %u by old completions, %u not issued\n",
		s->c.ended[SC_COMPLETED], s->c.ended[SC_OLD],
		s->c.ended[SC_DRAINED]);
}

/* A disk slower than --slow-ms is reported while it is slow. */
void scene_slow(struct scene *s)
{
	struct swapd_req r;
	u32 i;

	scene_open(s, 64, 32, 32ull << 20, SWAPD_RESERVED_BYTES + (32ull << 20));
	s->c.done = any_done;
	for (i = 0; i < 8; i++) {
		r = scene_req(s, SWAPD_WRITE, (u64)i << 20, (u64)i << 20,
			      1u << 20, i, 1);
		sc_submit(&s->c, &r, NULL);
	}
	sc_kick(&s->c);
	for (i = 0; i < 200 && !sc_counter(&s->c, SWAPD_CNT_slow); i++)
		sc_poll(&s->c, 50);
	scene_check(sc_counter(&s->c, SWAPD_CNT_slow), "nothing is slow");
	scene_check(s->c.nr_out, "told when it was over");
}

/* ---- by name ---- */

static const struct {
	const char *name;
	void (*run)(struct scene *s);
} scene_list[] = {
	{ "roundtrip", scene_roundtrip },
	{ "damage", scene_damage },
	{ "refused", scene_refused },
	{ "seam", scene_seam },
	{ "areas", scene_areas },
	{ "device", scene_device },
	{ "full", scene_full },
	{ "holes", scene_holes },
	{ "del", scene_del },
	{ "storm", scene_storm },
	{ "reborn", scene_reborn },
	{ "ended", scene_ended },
	{ "deaf", scene_deaf },
	{ "slow", scene_slow },
	{ "depth", scene_depth },
	{ "faults", scene_faults },
};

int scene_main(int argc, char **argv)
{
	static struct scene s;
	u32 i;

	scene_check(argc == 7, "wrong arguments");
	s.dir = argv[3];
	s.engine = !strcmp(argv[4], "uring") ? SWAPD_ENGINE_URING :
		   !strcmp(argv[4], "sync") ? SWAPD_ENGINE_SYNC :
		   SWAPD_ENGINE_AUTO;
	s.n = (u32)atoi(argv[5]);
	s.rng = (u64)atoi(argv[6]);
	for (i = 0; i < ARRAY_SIZE(scene_list); i++) {
		if (strcmp(scene_list[i].name, argv[2]))
			continue;
		scene_list[i].run(&s);
		return 0;
	}
	sc_die("no scene %s", argv[2]);
}
