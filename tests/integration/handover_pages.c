// SPDX-License-Identifier: Apache-2.0
/*
 * handover_pages.c - find the tenant that a page belongs to
 *
 * The marks of two tenants, and the bytes of the tiers that no client maps.
 * Root reads the host pool through the daemon's descriptor and an area through
 * its file.  A copy or transfer may be under way meanwhile, so a page that
 * seems wrong is read again before it counts.
 *
 * A mark is the high 24 bits of each half of a word; the low eight are free.
 * So ids, which are half as long, show too where two of them are neighbours.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "swapd/crc32c.h"
#include "swapd/slot.h"
#include "tests/integration/handover.h"

#define MASK		0xffffff00ffffff00ull
#define TRIES		200	/* of 5 ms, for copies under way to end */

static u64 mark(u32 tenant)
{
	const u64 half = tenant ? 0x6b1d5700ull : 0x35e9c200ull;

	return half << 32 | half;
}

u64 ho_word(u32 tenant, u32 low)
{
	return mark(tenant) | (u64)(low >> 8 & 0xff) << 32 | (low & 0xff);
}

bool ho_is(u32 tenant, u64 word)
{
	return (word & MASK) == mark(tenant);
}

size_t ho_find(u32 tenant, const void *p, size_t len)
{
	const u64 want = mark(tenant), *w = p;
	size_t i, nr = len / 8;

	for (i = 0; i + 4 <= nr; i += 4)
		if ((w[i] & MASK) == want || (w[i + 1] & MASK) == want ||
		    (w[i + 2] & MASK) == want || (w[i + 3] & MASK) == want)
			break;
	for (; i < nr; i++)
		if ((w[i] & MASK) == want)
			return i * 8;
	return len;
}

void ho_name(u32 tenant, char *name, size_t len)
{
	snprintf(name, len, "handed-over-by-%c", tenant ? 'b' : 'a');
}

u32 ho_half(u32 tenant)
{
	return tenant ? 592 : 528;
}

/* ---- the tiers below ---- */

void ho_pages_open(struct ho_pages *pg, const char *what, enum ho_kind kind,
		   int fd, size_t bytes)
{
	memset(pg, 0, sizeof(*pg));
	pg->what = what;
	pg->kind = kind;
	pg->fd = fd;
	pg->bytes = bytes;
	pg->buf = calloc(1, bytes);
	pg->owner = calloc(bytes / HO_PAGE, 1);
	ck_assert(pg->buf && pg->owner);
	crc32c_init(false);
}

void ho_pages_close(struct ho_pages *pg)
{
	if (pg->fd >= 0)
		close(pg->fd);
	free(pg->buf);
	free(pg->owner);
	memset(pg, 0, sizeof(*pg));
	pg->fd = -1;
}

static void read_all(struct ho_pages *pg)
{
	size_t done = 0;
	ssize_t n;

	while (done < pg->bytes) {
		n = pread(pg->fd, pg->buf + done, pg->bytes - done,
			  (off_t)done);
		ck_assert_msg(n > 0, "%s: cannot be read", pg->what);
		done += (size_t)n;
	}
}

/* The tenants that have words in the page, a bit each. */
static u32 page_of(const char *p)
{
	u32 t, has = 0;

	for (t = 0; t < HO_TENANTS; t++)
		if (ho_find(t, p, HO_PAGE) < HO_PAGE)
			has |= BIT(t);
	return has;
}

/* The slot at @off, if it is whole: not stale and overwritten, not under way. */
static const struct slot_header *slot_at(const struct ho_pages *pg, size_t off)
{
	const struct slot_header *h = (const void *)(pg->buf + off);

	if (h->magic != SLOT_MAGIC || h->payload_len > pg->bytes ||
	    off + HO_PAGE + h->payload_len > pg->bytes ||
	    crc32c(0, pg->buf + off + HO_PAGE, h->payload_len) !=
	    h->payload_crc)
		return NULL;
	return h;
}

static bool all_zero(const char *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* Bytes behind the header and behind the payload must be 0. */
static const char *slot_look(struct ho_pages *pg, size_t off,
			     const struct slot_header *h)
{
	static char text[128];
	const char *p = pg->buf + off, *what = NULL;
	size_t end = HO_PAGE + h->payload_len;

	if (!all_zero(p + sizeof(*h), HO_PAGE - sizeof(*h)))
		what = "its header's rest";
	else if (!all_zero(p + end, ALIGN_UP(end, HO_PAGE) - end))
		what = "what fills its last page up";
	if (!what) {
		pg->slots++;
		return NULL;
	}
	snprintf(text, sizeof(text), "%s: slot at %zu: %s is not 0", pg->what,
		 off, what);
	return text;
}

static const char *look_once(struct ho_pages *pg)
{
	static char text[128];
	const struct slot_header *h;
	const char *wrong;
	size_t off;

	pg->slots = 0;
	for (off = 0; off < pg->bytes; off += HO_PAGE) {
		h = slot_at(pg, off);
		wrong = h ? slot_look(pg, off, h) : NULL;
		if (wrong)
			return wrong;
		if (page_of(pg->buf + off) == (BIT(0) | BIT(1))) {
			snprintf(text, sizeof(text),
				 "%s: page at %zu has bytes of both tenants",
				 pg->what, off);
			return text;
		}
	}
	return NULL;
}

static void note_owners(struct ho_pages *pg)
{
	size_t i;

	for (i = 0; i < pg->bytes / HO_PAGE; i++) {
		u32 has = page_of(pg->buf + i * HO_PAGE);
		u8 who = has == BIT(0) ? 1 : 2;

		if (!has)
			continue;
		pg->changed += pg->owner[i] && pg->owner[i] != who;
		pg->owner[i] = who;
	}
}

const char *ho_pages_look(struct ho_pages *pg)
{
	const char *wrong = NULL;
	u32 i;

	for (i = 0; i < TRIES * time_scale(); i++) {
		read_all(pg);
		wrong = look_once(pg);
		if (!wrong)
			break;
		nap_ms(5);
	}
	if (!wrong)
		note_owners(pg);
	return wrong;
}

int ho_host_pool(pid_t daemon, size_t *bytes)
{
	char dir[64], path[400], to[256];
	struct dirent *e;
	struct stat st;
	int fd = -1;
	ssize_t n;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", daemon);
	d = opendir(dir);
	while (d && fd < 0 && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[n < 0 ? 0 : n] = '\0';
		if (!strncmp(to, "/memfd:kvmm-host", 16))
			fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (d)
		closedir(d);
	if (fd >= 0 && !fstat(fd, &st))
		*bytes = (size_t)st.st_size;
	return fd;
}
