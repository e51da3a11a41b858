/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover.h - two tenants who hand memory to each other, and look at it
 *
 * A player is a process of one tenant.  All that it writes, KV, ids, salts,
 * names, carries the tenant's mark, so a word says whose it is.  The driver
 * (it_handover.c) tells players what to do through a page that all share.
 */
#ifndef TESTS_HANDOVER_H
#define TESTS_HANDOVER_H

#include <sys/types.h>

#include <kvmm/types.h>

#include "tests/integration/harness.h"

#define HO_TENANTS	2u
#define HO_EXTENT	65536u
#define HO_SPAN		7u	/* extents, for either tenant */
#define HO_SPANS	32u	/* of the pool */
#define HO_EXTENTS	(HO_SPANS * HO_SPAN)
#define HO_TOKENS	16u
#define HO_SEQS		(3 * HO_SPANS)	/* of a player, at most */
#define HO_BLOCKS	8u	/* of a sequence, the last one not full */
#define HO_LEN		(HO_BLOCKS * HO_TOKENS - 7u)
#define HO_CLIENTS	64u
#define HO_PAGE		4096u

/* What can be one tenant's and then the other's. */
#define HO_KINDS(x)							\
	x(extent,	"extents of the device pool")			\
	x(host_slot,	"slots of the host pool")			\
	x(area_slot,	"slots of a swap area")				\
	x(segment,	"shared segments of a client")

enum ho_kind {
#define x(name, text) HO_##name,
	HO_KINDS(x)
#undef x
	HO_NR_KINDS
};

/* What a player can be told. */
enum ho_cmd {
	HO_NONE,
	HO_FILL,	/* @arg more sequences: looked at, then written */
	HO_OPEN_STEP,	/* begin a step and write, but do not end it */
	HO_CLOSE,	/* all its sequences */
	HO_VERIFY,	/* every READY sequence holds what was written */
	HO_OUT,		/* @arg sequences leave the device */
	HO_BACK,	/* and come back; not for ever */
	HO_LOOK,	/* at all that is mapped */
	HO_RENEW,	/* detach, attach again; @arg: as another model */
	HO_QUIT,	/* detach and end */
};

/* One player, as the driver and it see it. */
struct ho_slot {
	u32	cmd;		/* enum ho_cmd; the player clears it */
	u32	arg;
	u32	nr_ready;	/* sequences in the device pool */
	u32	nr_out;		/* that lost their memory and wait for it */
};

/* The page that all share. */
struct ho_shared {
	struct ho_slot	slot[HO_TENANTS];
	u32		owner[HO_EXTENTS];	/* 1 + tenant; 0: nobody yet */
	u32		generation[HO_EXTENTS];
	u32		client[HO_CLIENTS];	/* 1 + tenant that had the id */
	/* What follows goes on over all parts of a run. */
	u64		count[HO_NR_KINDS];
	u64		looked;			/* bytes */
	u64		verified[HO_TENANTS];	/* bytes read back, and right */
};

/* marks */
u64 ho_word(u32 tenant, u32 low);
bool ho_is(u32 tenant, u64 word);
/* Bytes from @p to the first word of the tenant's, @len: there is none. */
size_t ho_find(u32 tenant, const void *p, size_t len);
void ho_name(u32 tenant, char *name, size_t len);

/* Bytes of a token's K, and of its V: not the same for both. */
u32 ho_half(u32 tenant);

/* The tenants' users; @model: which of two models. */
struct ho_player {
	struct rig		*rig;
	struct ho_shared	*sh;
	u32			tenant;
	u32			model;
	uid_t			uid;
};

/* In a child: never returns. */
void ho_play(const struct ho_player *p) __attribute__((noreturn));

/*
 * The lower tiers, which no client maps: their bytes page by page, with whose
 * each was.
 */
struct ho_pages {
	const char	*what;
	enum ho_kind	kind;
	int		fd;
	size_t		bytes;
	char		*buf;
	u8		*owner;		/* a page: 1 + tenant that had it */
	u64		changed;	/* pages of content */
	u64		before;		/* hand-overs, before it was opened */
	u64		slots;		/* whole slots that were looked at */
};

void ho_pages_open(struct ho_pages *pg, const char *what, enum ho_kind kind,
		   int fd, size_t bytes);
/*
 * Look at all of it: no page has words of both, and a whole slot that was
 * written for one has no byte that is not its own or 0.
 * Return: NULL, or what is wrong.
 */
const char *ho_pages_look(struct ho_pages *pg);
void ho_pages_close(struct ho_pages *pg);
/* The daemon's host pool, for root; -1: it cannot be had. */
int ho_host_pool(pid_t daemon, size_t *bytes);

#endif /* TESTS_HANDOVER_H */
