// SPDX-License-Identifier: Apache-2.0
/*
 * swap_scenes.c - data out and in, damage, and wrong requests
 *
 * Each scene is a whole life of a fake kvmm.  It returns after success, and
 * ends the process with a line at the first fault.
 */
#include "tests/integration/swap_scenes.h"

#include "swapd/slot.h"

#define SLOT_MAX	(1u << 20)

/* ---- tools ---- */

u32 scene_random(struct scene *s, u32 n)
{
	s->rng = s->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((s->rng >> 33) % n);
}

u64 scene_word(u64 seed, u64 i)
{
	return (seed + 1) * 0x9e3779b97f4a7c15ull + i * 0xc2b2ae3d27d4eb4full;
}

void scene_fill(u8 *payload, u32 len, u64 seed)
{
	u64 *w = (u64 *)payload;
	u32 i;

	for (i = 0; i < len / 8; i++)
		w[i] = scene_word(seed, i);
	for (i *= 8; i < len; i++)
		payload[i] = (u8)seed;
}

bool scene_is(const u8 *payload, u32 len, u64 seed)
{
	const u64 *w = (const u64 *)payload;
	u32 i;

	for (i = 0; i < len / 8; i++)
		if (w[i] != scene_word(seed, i))
			return false;
	for (i *= 8; i < len; i++)
		if (payload[i] != (u8)seed)
			return false;
	return true;
}

int scene_file(struct scene *s, const char *name, int flags)
{
	const char *device = getenv(SCENE_AREA);
	char path[4096];
	int fd;

	if (device && !strcmp(name, "area"))
		snprintf(path, sizeof(path), "%s", device);
	else
		snprintf(path, sizeof(path), "%s/%s", s->dir, name);
	fd = open(path, flags | O_CLOEXEC, 0600);
	scene_check(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

static void scene_done(struct swapc *c, const struct swapd_req *req, void *arg,
		       enum sc_how how, int status)
{
	struct scene *s = container_of(c, struct scene, c);

	s->nr_done++;
	s->last = status;
	scene_check(how == SC_COMPLETED, "request ended by %u", how);
}

void scene_open(struct scene *s, u32 entries, u32 depth, u64 pool_bytes,
		u64 area_bytes)
{
	u64 value = HOLD_SWAP_VALUE(depth, s->engine, 3, 500);
	int err;

	sc_open(&s->c, entries, pool_bytes, value, scene_done);
	scene_check(s->engine == SWAPD_ENGINE_AUTO || s->c.engine == s->engine,
		    "engine %u instead of %u", s->c.engine, s->engine);
	if (!area_bytes)
		return;
	s->area_fd = scene_file(s, "area", O_RDWR | O_CREAT);
	s->area_bytes = area_bytes;
	err = sc_area_add(&s->c, 0, s->area_fd, area_bytes, 0, NULL, &s->area);
	scene_check(!err, "area: %s", s->area.text);
	scene_check(s->area.usable_bytes == area_bytes - SWAPD_RESERVED_BYTES,
		    "%llu usable", (unsigned long long)s->area.usable_bytes);
	if (s->area.text[0])
		fprintf(stderr, "note: %s\n", s->area.text);
}

struct swapd_req scene_req(const struct scene *s, u32 op, u64 host_off,
			   u64 slot_off, u32 len, u64 seed, u64 generation)
{
	return (struct swapd_req){
		.op = op,
		.host_off = host_off,
		.area_off = s->area.usable_off + slot_off,
		.len = len,
		.payload_len = len - SWAPD_HEADER_BYTES - (u32)(seed % 7),
		.domain = (u32)seed * 3,
		.hash = { scene_word(seed, 1000), scene_word(seed, 1001) },
		.generation = generation,
	};
}

int scene_do(struct scene *s, const struct swapd_req *req)
{
	sc_submit(&s->c, req, NULL);
	sc_kick(&s->c);
	scene_check(sc_quiet(&s->c, 20000), "a request without an answer");
	return s->last;
}

/* ---- out and in ---- */

struct trip {
	u32	len[256];
	u32	n;
	u32	each;	/* bytes between slots */
	u32	bad;
};

static void trip_go(struct scene *s, struct trip *t, u32 op, u64 generation)
{
	u32 i;

	for (i = 0; i < t->n; i++) {
		u64 host = op == SWAPD_WRITE ? i : t->n - 1 - i;
		struct swapd_req r = scene_req(s, op, host * t->each,
					       (u64)i * t->each, t->len[i],
					       i + generation, generation);

		while (!sc_ready(&s->c))
			sc_poll(&s->c, 10);
		sc_submit(&s->c, &r, NULL);
		/* Some in batches, some alone. */
		if (i % 16 > 8 || i == t->n - 1)
			sc_kick(&s->c);
	}
	scene_check(sc_quiet(&s->c, 30000), "%u requests without an answer",
		    s->c.nr_out);
}

static void trip_check(struct scene *s, const struct trip *t, u64 generation)
{
	u32 i;

	for (i = 0; i < t->n; i++) {
		u64 seed = i + generation;
		const u8 *p = s->c.pool + (u64)(t->n - 1 - i) * t->each +
			      SWAPD_HEADER_BYTES;

		scene_check(scene_is(p, t->len[i] - SWAPD_HEADER_BYTES -
				     (u32)(seed % 7), seed),
			    "slot %u came back different", i);
	}
}

/* Slots of many sizes, written and read again at other places of the host. */
void scene_roundtrip(struct scene *s)
{
	static struct trip t;
	u64 round, total = 0;
	u32 i;

	t.n = s->n;
	t.each = SLOT_MAX;
	scene_open(s, 64, 64, (u64)t.n * t.each,
		   SWAPD_RESERVED_BYTES + (u64)t.n * t.each);
	for (round = 1; round <= 3; round++) {
		for (i = 0; i < t.n; i++) {
			t.len[i] = i == 0 ? 2 * SWAPD_ALIGN :
				   i == 1 ? SLOT_MAX :
				   SWAPD_ALIGN *
				   (2 + scene_random(s, SLOT_MAX / SWAPD_ALIGN - 1));
			total += t.len[i];
			scene_fill(s->c.pool + (u64)i * t.each +
				   SWAPD_HEADER_BYTES,
				   t.len[i] - SWAPD_HEADER_BYTES -
				   (u32)((i + round) % 7), i + round);
		}
		trip_go(s, &t, SWAPD_WRITE, round);
		memset(s->c.pool, 0xee, s->c.pool_bytes);
		trip_go(s, &t, SWAPD_READ, round);
		trip_check(s, &t, round);
	}
	scene_check(s->c.ended[SC_COMPLETED] == 6 * t.n, "not all completed");
	scene_check(sc_counter(&s->c, SWAPD_CNT_reads) == 3 * t.n &&
		    sc_counter(&s->c, SWAPD_CNT_writes) == 3 * t.n &&
		    sc_counter(&s->c, SWAPD_CNT_read_bytes) == total,
		    "the counters are wrong");
	if (s->c.engine == SWAPD_ENGINE_URING)
		scene_check(sc_counter(&s->c, SWAPD_CNT_submits) < 5 * t.n,
			    "%llu submits for %u requests",
			    (unsigned long long)sc_counter(&s->c, SWAPD_CNT_submits),
			    6 * t.n);
}

/* ---- damage ---- */

#define DMG_LEN		(64u << 10)

struct damage {
	struct scene	*s;
	u8		*disk;		/* complete content of the slot */
	u64		slot;		/* offset in the area */
	u64		generation;
};

static void disk_write(struct damage *d, const void *buf, u64 at, size_t len)
{
	off_t off = (off_t)(d->s->area.usable_off + at);

	scene_check(pwrite(d->s->raw_fd, buf, len, off) == (ssize_t)len &&
		    !fdatasync(d->s->raw_fd), "damage: %s", strerror(errno));
}

static void disk_read(struct damage *d, void *buf, u64 at, size_t len)
{
	off_t off = (off_t)(d->s->area.usable_off + at);

	scene_check(pread(d->s->raw_fd, buf, len, off) == (ssize_t)len,
		    "damage: %s", strerror(errno));
}

/* Write a good slot to the disk, and copy it to @disk. */
static void damage_begin(struct damage *d, u64 slot, u64 seed, u64 generation)
{
	struct scene *s = d->s;
	struct swapd_req r = scene_req(s, SWAPD_WRITE, 0, slot, DMG_LEN, seed,
				       generation);

	scene_fill(s->c.pool + SWAPD_HEADER_BYTES, r.payload_len, seed);
	scene_check(!scene_do(s, &r), "write: %s", strerror(-s->last));
	d->slot = slot;
	d->generation = generation;
	disk_read(d, d->disk, slot, DMG_LEN);
}

/* Reading must fail with @status and count one @counter. */
static void damage_read(struct damage *d, const struct swapd_req *r, int status,
			enum swapd_counter counter, const char *what)
{
	u64 before = sc_counter(&d->s->c, counter);
	int got;

	/* The host slot may still hold the very block that is read. */
	memcpy(d->s->c.pool + r->host_off, d->disk, DMG_LEN);
	got = scene_do(d->s, r);
	scene_check(got == status, "%s: %d (%s) instead of %d", what, got,
		    strerror(-got), status);
	scene_check(sc_counter(&d->s->c, counter) == before + 1,
		    "%s: not counted", what);
}

static struct swapd_req damage_req(struct damage *d, u64 seed)
{
	return scene_req(d->s, SWAPD_READ, DMG_LEN, d->slot, DMG_LEN, seed,
			 d->generation);
}

static void damage_bits(struct damage *d)
{
	struct swapd_req r = damage_req(d, 5);
	u32 i;
	u8 b;

	for (i = 0; i < 400; i++) {
		/* Every byte of the header's fields, then random bytes. */
		u32 at = i < sizeof(struct slot_header) ? i : i < 200 ?
			 scene_random(d->s, SWAPD_HEADER_BYTES) :
			 SWAPD_HEADER_BYTES + scene_random(d->s, r.payload_len);

		b = d->disk[at] ^ (u8)(1u << (i % 8));
		disk_write(d, &b, d->slot + at, 1);
		damage_read(d, &r, -EBADMSG,
			    at < 8 ? SWAPD_CNT_bad_magic :
			    at < SWAPD_HEADER_BYTES ? SWAPD_CNT_bad_header_crc :
			    SWAPD_CNT_bad_payload_crc, "bit flip");
		disk_write(d, &d->disk[at], d->slot + at, 1);
	}
	scene_check(!scene_do(d->s, &r), "healed, and still bad");
}

/* The front of the new write and the rest of the old one, cut at every sector. */
static void damage_torn(struct damage *d)
{
	u8 *old = malloc(DMG_LEN);
	struct swapd_req r;
	u32 cut;

	scene_check(old, "no memory");
	memcpy(old, d->disk, DMG_LEN);
	damage_begin(d, d->slot, 6, d->generation + 1);
	r = damage_req(d, 6);
	for (cut = 512; cut < DMG_LEN; cut += 512) {
		/* The front is new, the rest is old. */
		disk_write(d, d->disk, d->slot, cut);
		disk_write(d, old + cut, d->slot + cut, DMG_LEN - cut);
		damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_payload_crc, "torn");
	}
	/* All of it is old: the write was lost. */
	disk_write(d, old, d->slot, DMG_LEN);
	r.domain = 5 * 3;
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_generation, "stale");
	disk_write(d, d->disk, d->slot, DMG_LEN);
	free(old);
}

static void damage_places(struct damage *d)
{
	const u64 here = d->slot;
	struct swapd_req r;

	/* The slot was written to the wrong place. */
	disk_write(d, d->disk, here + 4 * DMG_LEN, DMG_LEN);
	d->slot = here + 4 * DMG_LEN;
	r = damage_req(d, 6);
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_offset, "misdirected");
	/* The slot was never written. */
	d->slot = here + 8 * DMG_LEN;
	r = damage_req(d, 6);
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_magic, "never written");
	d->slot = here;
}

static void damage_identity(struct damage *d)
{
	struct swapd_req r = damage_req(d, 6);

	r.hash[1]++;
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_hash, "hash");
	r = damage_req(d, 6);
	r.domain++;
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_domain, "domain");
	r = damage_req(d, 6);
	r.generation--;
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_generation, "generation");
	r = damage_req(d, 6);
	r.payload_len--;
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_length, "length");
	r = damage_req(d, 6);
	scene_check(!scene_do(d->s, &r), "right, and refused");
}

/* A slot of another area, at the same place. */
static void damage_area(struct damage *d)
{
	int fd = scene_file(d->s, "other", O_RDWR | O_CREAT);
	struct swapd_answer a;
	struct swapd_req r = damage_req(d, 6);

	scene_check(!sc_area_add(&d->s->c, 1, fd, 4u << 20, 0, NULL, &a),
		    "second area: %s", a.text);
	scene_check(pwrite(fd, d->disk, DMG_LEN,
			   (off_t)(d->s->area.usable_off + d->slot)) == DMG_LEN ||
		    errno == EINVAL, "copy: %s", strerror(errno));
	close(fd);
	fd = scene_file(d->s, "other", O_RDWR);
	scene_check(pwrite(fd, d->disk, DMG_LEN,
			   (off_t)(d->s->area.usable_off + d->slot)) == DMG_LEN &&
		    !fdatasync(fd), "copy: %s", strerror(errno));
	close(fd);
	r.area = 1;
	damage_read(d, &r, -EBADMSG, SWAPD_CNT_bad_area, "another area");
}

/* The file is cut: it ends in the middle of the slot. */
static void damage_cut(struct damage *d)
{
	struct swapd_req r = damage_req(d, 6), w = r;

	scene_check(!ftruncate(d->s->raw_fd,
			       (off_t)(d->s->area.usable_off + d->slot +
				       DMG_LEN / 2)),
		    "cut: %s", strerror(errno));
	damage_read(d, &r, -EIO, SWAPD_CNT_io_short, "cut file");
	r.area_off += 4 * DMG_LEN;
	damage_read(d, &r, -EIO, SWAPD_CNT_io_short, "behind the end");
	/*
	 * No byte came, and the old content of the host slot must not pass for
	 * the block.
	 */
	scene_check(memcmp(d->s->c.pool + r.host_off, d->disk, 8),
		    "the host slot still looks like a slot");
	/* Writing makes the file longer again; then the slot is good. */
	w.op = SWAPD_WRITE;
	scene_check(!scene_do(d->s, &w), "write: %s", strerror(-d->s->last));
	r = damage_req(d, 6);
	scene_check(!scene_do(d->s, &r), "written anew, and bad");
}

/* Any damage on the disk must be found. */
void scene_damage(struct scene *s)
{
	struct damage d = { .s = s, .disk = malloc(DMG_LEN) };

	scene_open(s, 16, 8, 4u << 20, 8u << 20);
	scene_check(d.disk, "no memory");
	s->raw_fd = scene_file(s, "area", O_RDWR);
	damage_begin(&d, 0, 5, 1);
	damage_bits(&d);
	damage_torn(&d);
	damage_places(&d);
	damage_identity(&d);
	damage_area(&d);
	damage_cut(&d);
	free(d.disk);
}

/* ---- wrong requests ---- */

/* Change one field of a good request. */
static void spoil(struct swapd_req *r, u32 i, const struct scene *s)
{
	switch (i) {
	case 0:	r->op = 0; break;
	case 1:	r->op = 3; break;
	case 2:	r->host_off += 512; break;
	case 3:	r->area_off += 512; break;
	case 4:	r->len += 512; break;
	case 5:	r->len = SWAPD_HEADER_BYTES; break;
	case 6:	r->len = 0; break;
	case 7:	r->len = SWAPD_LEN_MAX + SWAPD_ALIGN; break;
	case 8:	r->payload_len = r->len - SWAPD_HEADER_BYTES + 1; break;
	case 9:	r->payload_len = UINT32_MAX; break;
	case 10: r->host_off = s->c.pool_bytes; break;
	case 11: r->host_off = s->c.pool_bytes - SWAPD_ALIGN; break;
	case 12: r->host_off = UINT64_MAX & ~4095ull; break;
	case 13: r->area_off = s->area.usable_off - SWAPD_ALIGN; break;
	case 14: r->area_off = 0; break;
	case 15: r->area_off = s->area_bytes - SWAPD_ALIGN; break;
	case 16: r->area_off = UINT64_MAX & ~4095ull; break;
	case 17: r->resv = 1; break;
	case 18: r->resv2[2] = 1; break;
	case 19: r->area = 1; break;
	case 20: r->area = SWAPD_AREAS; break;
	case 21: r->area = UINT32_MAX; break;
	}
}

void scene_refused(struct scene *s)
{
	struct swapd_req r;
	u32 i;

	scene_open(s, 8, 8, 4u << 20, 8u << 20);
	for (i = 0; i < 22; i++) {
		int want = i < 19 ? -EINVAL : -ENXIO;

		memset(s->c.pool, 0x55, 1u << 20);
		r = scene_req(s, SWAPD_WRITE, 0, 0, 64u << 10, 1, 1);
		spoil(&r, i, s);
		scene_check(scene_do(s, &r) == want, "case %u: %d instead of %d",
			    i, s->last, want);
		scene_check(sc_counter(&s->c, SWAPD_CNT_refused) == i + 1,
			    "case %u: not counted", i);
		scene_check(s->c.pool[0] == 0x55, "case %u: the slot was touched",
			    i);
	}
	/* No slot of the ring may be lost. */
	for (i = 0; i < 8; i++) {
		r = scene_req(s, SWAPD_WRITE, i << 16, i << 16, 64u << 10, i, 1);
		sc_submit(&s->c, &r, NULL);
	}
	sc_kick(&s->c);
	scene_check(sc_quiet(&s->c, 20000) && !s->last, "after refusals");
	/* One by one, so that either side is about to sleep: no wake-up may be lost. */
	r.op = 0;
	for (i = 0; i < 30000; i++)
		scene_check(scene_do(s, &r) == -EINVAL, "refused, then not");
}

/* A host slot may end at the seam of two registered pieces, or cross it. */
void scene_seam(struct scene *s)
{
	const u64 seam = SWAPD_SEAM;
	const u32 len = 64u << 10;
	struct swapd_req r;

	scene_open(s, 8, 8, seam + (2u << 20), 8u << 20);
	r = scene_req(s, SWAPD_WRITE, seam - len, 0, len, 1, 1);
	scene_fill(s->c.pool + r.host_off + SWAPD_HEADER_BYTES, r.payload_len, 1);
	scene_check(!scene_do(s, &r), "before the seam: %d", s->last);
	r = scene_req(s, SWAPD_READ, seam, 0, len, 1, 1);
	scene_check(!scene_do(s, &r), "after the seam: %d", s->last);
	scene_check(scene_is(s->c.pool + seam + SWAPD_HEADER_BYTES,
			     r.payload_len, 1), "different after the seam");
	r.host_off = seam - len / 2;
	memset(s->c.pool + r.host_off, 0xee, len);
	scene_check(!scene_do(s, &r), "across the seam: %d", s->last);
	scene_check(scene_is(s->c.pool + r.host_off + SWAPD_HEADER_BYTES,
			     r.payload_len, 1), "different across the seam");
	r = scene_req(s, SWAPD_WRITE, seam - SWAPD_ALIGN, len, len, 2, 1);
	scene_fill(s->c.pool + r.host_off + SWAPD_HEADER_BYTES, r.payload_len, 2);
	scene_check(!scene_do(s, &r), "written across: %d", s->last);
	r = scene_req(s, SWAPD_READ, 0, len, len, 2, 1);
	scene_check(!scene_do(s, &r), "read back: %d", s->last);
	scene_check(scene_is(s->c.pool + SWAPD_HEADER_BYTES, r.payload_len, 2),
		    "different after a write across");
}

/* Give a new swapd the area, which must still be the same.  False: try later. */
bool scene_area_again(struct scene *s)
{
	static u32 known = 1;
	struct swapd_answer a;
	int err;

	if (!s->c.serving)
		return false;
	if (known == s->c.generation)
		return true;
	err = sc_area_add(&s->c, 0, s->area_fd, s->area_bytes, 0, s->area.uuid,
			  &a);
	if (err == -ECONNRESET)
		return false;
	scene_check(!err, "the area again: %s", a.text);
	known = s->c.generation;
	return true;
}
