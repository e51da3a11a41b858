/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover.h - two tenants that hand memory to each other, and search it
 *
 * A player is a process of one tenant.  All that it writes, KV, ids, salts,
 * names, carries the tenant's mark, so every word names its tenant.  The driver
 * (it_handover.c) sends players commands through a page that all of them share.
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

/* Kinds of memory that one tenant gives up and the other one gets. */
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

/* Commands to a player. */
enum ho_cmd {
	HO_NONE,
	HO_FILL,	/* open @arg sequences, search them, write them */
	HO_OPEN_STEP,	/* begin a step and write, but do not end it */
	HO_CLOSE,	/* close all its sequences */
	HO_VERIFY,	/* compare every READY sequence with the words written */
	HO_OUT,		/* page out @arg sequences */
	HO_BACK,	/* page them in; gives up after a while */
	HO_LOOK,	/* search all mapped memory */
	HO_RENEW,	/* detach, attach again; @arg: as another model */
	HO_QUIT,	/* detach and end */
};

/* One player, as the driver and the player see it. */
struct ho_slot {
	u32	cmd;		/* enum ho_cmd; the player clears it */
	u32	arg;
	u32	nr_ready;	/* sequences in the device pool */
	u32	nr_out;		/* sequences that lost their memory and wait for it */
};

/* The page that the driver and the players share. */
struct ho_shared {
	struct ho_slot	slot[HO_TENANTS];
	u32		owner[HO_EXTENTS];	/* 1 + tenant; 0: not used yet */
	u32		generation[HO_EXTENTS];
	u32		client[HO_CLIENTS];	/* 1 + tenant that had the id */
	/* These counts go on over all parts of a run. */
	u64		count[HO_NR_KINDS];
	u64		looked;			/* bytes */
	u64		verified[HO_TENANTS];	/* bytes read back and found right */
};

/* marks */
u64 ho_word(u32 tenant, u32 low);
bool ho_is(u32 tenant, u64 word);
/* Offset of the tenant's first word from @p; @len if there is none. */
size_t ho_find(u32 tenant, const void *p, size_t len);
void ho_name(u32 tenant, char *name, size_t len);

/* Bytes of a token's K, and of its V; they differ between the tenants. */
u32 ho_half(u32 tenant);

/* The player of a tenant; @model: which of two models it attaches as. */
struct ho_player {
	struct rig		*rig;
	struct ho_shared	*sh;
	u32			tenant;
	u32			model;
	uid_t			uid;
};

/* Play, in a child. */
void ho_play(const struct ho_player *p) __attribute__((noreturn));

/*
 * The lower tiers, which no client maps: their bytes page by page, and the
 * tenant that had each page last.
 */
struct ho_pages {
	const char	*what;
	enum ho_kind	kind;
	int		fd;
	size_t		bytes;
	char		*buf;
	u8		*owner;		/* a page: 1 + tenant that had it */
	u64		changed;	/* pages of content */
	u64		before;		/* hand-overs counted before it was opened */
	u64		slots;		/* whole slots that were looked at */
};

void ho_pages_open(struct ho_pages *pg, const char *what, enum ho_kind kind,
		   int fd, size_t bytes);
/*
 * Search all pages: no page may have words of both tenants, and a whole slot
 * must be 0 behind its header and behind its payload.
 * Return: NULL, or the fault in words.
 */
const char *ho_pages_look(struct ho_pages *pg);
void ho_pages_close(struct ho_pages *pg);
/* The daemon's host pool, for root; -1: it is out of reach. */
int ho_host_pool(pid_t daemon, size_t *bytes);

#endif /* TESTS_HANDOVER_H */
