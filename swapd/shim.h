/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h - a disk that lies: faults between swapd and the kernel, for tests
 *
 * KVMM_DISK_FAULTS=seed=7,rate=50,delay=400,kinds=eio+torn,tally=FILE
 *
 *	seed	of the dice; the same requests get the same faults
 *	rate	faults in 1000 requests
 *	delay	milliseconds at most
 *	kinds	by name; without it every kind
 *	tally	struct shim_tally in a file that outlives swapd
 *	area	by swapd's number; without it all
 *
 * Semicolons separate rules: the first rule that names the area counts.
 *
 * Only the swapd of test builds (build/faults/swapd) has it, as the points of
 * kvmm/fault.h.
 */
#ifndef SWAPD_SHIM_H
#define SWAPD_SHIM_H

#include <kvmm/types.h>

#define SHIM_ENV	"KVMM_DISK_FAULTS"

#define SHIM_R		BIT(0)	/* may happen to a read */
#define SHIM_W		BIT(1)	/* to a write */

/* name, requests it may happen to, behaviour of the disk, how it is found */
#define SHIM_KINDS(x)							\
	x(eio,		SHIM_R | SHIM_W,				\
	  "fails, `EIO`", "`io_errors`")				\
	x(enospc,	SHIM_W,						\
	  "fails, `ENOSPC`", "`io_nospace`")				\
	x(cut,		SHIM_R | SHIM_W,				\
	  "transfers a part, and says so", "`io_short`")		\
	x(delay,	SHIM_R | SHIM_W,				\
	  "begins later, up to `delay` ms", "`slow`; the deadline of kvmm") \
	x(torn,		SHIM_W,						\
	  "writes the first part, says all", "`bad_payload_crc`")	\
	x(lost,		SHIM_W,						\
	  "writes nothing, says all", "`bad_generation`, `bad_magic`")	\
	x(hollow,	SHIM_R,						\
	  "reads nothing, says all", "`bad_magic`")			\
	x(astray_write,	SHIM_W,						\
	  "writes to another slot's place", "`bad_offset` there, as `lost` here") \
	x(astray_read,	SHIM_R,						\
	  "reads from another slot's place", "`bad_offset`, `bad_magic`") \
	x(twice,	SHIM_W,						\
	  "writes twice", "harmless")					\
	x(late,		SHIM_W,						\
	  "an older write of the place lands after a newer one",	\
	  "`bad_generation`, `bad_domain`")				\
	x(flip_header,	SHIM_R,						\
	  "reads a bit of the header wrong",				\
	  "`bad_header_crc`, `bad_magic`")				\
	x(flip_payload,	SHIM_R,						\
	  "reads a bit of the payload wrong", "`bad_payload_crc`")	\
	x(rot_header,	SHIM_W,						\
	  "a bit of the header turns over on the disk",			\
	  "`bad_header_crc`, `bad_magic`")				\
	x(rot_payload,	SHIM_W,						\
	  "a bit of the payload turns over on the disk",		\
	  "`bad_payload_crc`")

enum shim_kind {
#define x(name, of, text, found) SHIM_##name,
	SHIM_KINDS(x)
#undef x
	NR_SHIM_KINDS,
	SHIM_NONE = NR_SHIM_KINDS,
};

/**
 * struct shim_tally - faults so far, over all lives of swapd
 * @seen: requests that the dice were thrown for
 * @off:  written by the test: no faults while it is not 0
 * @done: faults that took place, by kind
 */
struct shim_tally {
	u64	seen;
	u64	off;
	u64	done[NR_SHIM_KINDS];
};

struct swapd;
struct sd_io;

#ifdef KVMM_TEST_FAULTS

extern bool shim_on;

/* Name and texts of a kind, for lists; NULL past the end. */
const char *shim_kind_name(u32 kind);
const char *shim_kind_text(u32 kind);
const char *shim_kind_found(u32 kind);

/**
 * shim_init() - parse the value of SHIM_ENV, before threads exist
 * @spec: the value, or NULL: the disk is honest
 * @text: @len bytes for one line about the mistake in @spec
 *
 * Return: 0 or -EINVAL.
 */
int __must_check shim_init(const char *spec, char *text, size_t len);

/* shim_env() - shim_init() with SHIM_ENV of the environment */
int __must_check shim_env(char *text, size_t len);

/**
 * shim_plan() - throw the dice for a request that is to be issued
 *
 * Sets @io->xfer, and @io->due if the request is to wait.  Called once for each
 * request, which does not hold its area yet.
 */
void shim_plan(struct swapd *s, struct sd_io *io);

/**
 * shim_join() - make the plan of a transfer from the plans of its requests
 * @lead: the first request
 *
 * A shared transfer has the fault of the first request that has one: it fails,
 * is cut there, is torn there (the requests behind are lost), or all of it is
 * lost, hollow or astray.
 */
void shim_join(struct swapd *s, struct sd_io *lead);

/**
 * shim_end() - a request has ended; its slots still belong to it
 * @res: result of the kernel
 *
 * Return: the result that the disk reports.
 */
s64 shim_end(struct swapd *s, struct sd_io *io, s64 res);

#else

static const bool shim_on;

static inline int __must_check shim_env(char *text, size_t len)
{
	return 0;
}

static inline void shim_plan(struct swapd *s, struct sd_io *io)
{
}

static inline void shim_join(struct swapd *s, struct sd_io *lead)
{
}

static inline s64 shim_end(struct swapd *s, struct sd_io *io, s64 res)
{
	return res;
}

#endif

#endif /* SWAPD_SHIM_H */
