/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swapd.h - the protocol between kvmm and swapd
 *
 * Three channels, all made anew or reset at each start of swapd:
 *
 *   shared memory   a memfd made by kvmm: struct swapd_ctl, a ring of requests
 *                   (kvmm to swapd) and a ring of completions (swapd to kvmm),
 *                   both SPSC with free-running indices as in ring.h
 *   two eventfds    made by kvmm: one wakes swapd, the other kvmm; written only
 *                   when the other side's sleep flag is set
 *   control socket  a seqpacket pair made by hold: areas come and go here
 *
 * Life.  kvmm deposits shared memory, host pool and eventfds with kvmm-hold
 * (kvmm/hold/hold.h) and then HOLD_SWAP_RUN; hold starts swapd and sends kvmm
 * HOLD_SWAPD_UP with its end of the control socket.  swapd says HELLO and
 * touches nothing shared.  kvmm sets all four indices to 0 and says START;
 * then it adds its areas and, once they are answered, sends requests.
 *
 * Death.  Hold sends HOLD_SWAPD_DOWN: no thread of that swapd is left, so the
 * completion ring holds all of its completions, and all of them are true.
 * But its transfers in the kernel go on.  A request without completion keeps
 * its host slot and its area slot (LIMBO) until HOLD_SWAP_OLD_CQE names its
 * transfer or HOLD_SWAP_DRAINED names the generation.  After that no transfer of
 * that swapd reads or writes anywhere, and a request that was never named is
 * in no transfer: it was not issued, or it was in a shared transfer that failed.
 * A raw completion proves that the transfer is over, not that the bytes read are
 * right.  It may name a transfer that swapd had already completed.
 *
 * Transfers.  Requests that are neighbours in the area and on the host may
 * share one transfer.  The table of carriers names the transfer of a request, at
 * the request's tag, before the kernel gets it: struct swapd_carrier.  kvmm reads
 * that table at DOWN, before the next START.
 *
 * A request id is SWAPD_ID(serial, tag): the serial rises and is never used
 * twice while hold lives; the tag is below swapd_ctl.entries and no two
 * unfinished requests have the same one.  So kvmm never has more than
 * @entries unfinished requests and the completion ring cannot overflow.
 *
 * No other request may name the host slot or the area slot of an unfinished
 * request: requests are done in no order, headers are written before a WRITE and
 * cleared before a READ.  swapd does not check this.
 *
 * A slot, on the host and in an area, is a header of SWAPD_HEADER_BYTES and
 * the payload, contiguous and aligned to SWAPD_ALIGN.  The header is swapd's:
 * it fills it for a WRITE and compares every field for a READ.
 */
#ifndef KVMM_SWAPD_H
#define KVMM_SWAPD_H

#include <kvmm/types.h>

#define SWAPD_MAGIC		0x3144504157534d56ull
#define SWAPD_VERSION		2

#define SWAPD_ALIGN		4096u
#define SWAPD_HEADER_BYTES	4096u
#define SWAPD_RESERVED_BYTES	(1u << 20)	/* at the start of an area */
#define SWAPD_SEAM		(1ull << 30)	/* registered pieces of the pool */
#define SWAPD_LEN_MAX		(256u << 20)	/* of one request */
#define SWAPD_AREAS		32
#define SWAPD_ENTRIES_MIN	8		/* of a ring: powers of two */
#define SWAPD_ENTRIES_MAX	4096
#define SWAPD_DEPTH_MAX		1024		/* given to the kernel at once */
#define SWAPD_UUID_LEN		16

#define SWAPD_ID(serial, tag)	((u64)(serial) << 16 | (u16)(tag))
#define SWAPD_ID_TAG(id)	((u32)((id) & 0xffff))
/* In the name of a transfer: it has one request, which was in a shared one before. */
#define SWAPD_ALONE		BIT(15)

enum swapd_op {
	SWAPD_READ = 1,		/* area to host slot; header and sums compared */
	SWAPD_WRITE,		/* host slot to area; header and sums made */
};

/**
 * struct swapd_req - one request
 * @id:          SWAPD_ID()
 * @op:          enum swapd_op
 * @area:        index of a live area
 * @host_off:    of the slot in the host pool; multiple of SWAPD_ALIGN
 * @area_off:    of the slot in the area; multiple of SWAPD_ALIGN
 * @len:         header and payload together, multiple of SWAPD_ALIGN
 * @payload_len: bytes of payload under the sum, at most @len less the header
 * @domain:      compared, like @hash and @generation
 * @resv:        0
 * @hash:        of the block, or its owner
 * @generation:  of the slot's contents; two writes to one slot differ in it
 * @resv2:       0
 */
struct swapd_req {
	u64	id;
	u32	op;
	u32	area;
	u64	host_off;
	u64	area_off;
	u32	len;
	u32	payload_len;
	u32	domain;
	u32	resv;
	u64	hash[2];
	u64	generation;
	u64	resv2[3];
};

/**
 * struct swapd_cpl - the completion of a request
 * @id:     as in the request
 * @status: 0: all bytes were transferred, and those read are those once written.
 *          -EBADMSG: the slot was read, and is not the block asked for.
 *          -EIO, -ENOSPC, -EFBIG, -ENODEV ...: the transfer failed or was short.
 *          -ENXIO: no such area, or it is going away.
 *          -EINVAL: lengths or offsets are wrong; -EPROTO: the id is.
 * @resv:   0
 *
 * swapd does not touch the slots once the completion is published.
 */
struct swapd_cpl {
	u64	id;
	s32	status;
	u32	resv;
};

/**
 * struct swapd_carrier - the transfer that a request is in
 * @id:       of the request; written last, cleared first: if it is not the
 *            request's own id, the request is in no transfer
 * @transfer: name of the transfer, which the kernel's completion has: the id of
 *            one of its requests, with SWAPD_ALONE if that request was in another
 *            transfer before.  Transfers that can be unfinished at once have
 *            different names
 * @off:      bytes of the transfer before the request's
 * @nr:       requests in the transfer
 *
 * swapd writes it; kvmm reads it when that swapd is dead.
 */
struct swapd_carrier {
	u64	id;
	u64	transfer;
	u32	off;
	u32	nr;
};

/* Counters over all areas; only swapd writes them. */
#define SWAPD_COUNTERS(x)						\
	x(reads,		"slots read and found right")		\
	x(writes,		"slots written")			\
	x(read_bytes,		"bytes of those")			\
	x(write_bytes,		"bytes of those")			\
	x(io_errors,		"transfers that the kernel failed")	\
	x(io_short,		"transfers that ended early")		\
	x(io_nospace,		"writes that found no room")		\
	x(bad_magic,		"reads that found no header")		\
	x(bad_version,		"reads that found another version")	\
	x(bad_header_crc,	"reads that found a damaged header")	\
	x(bad_area,		"reads that found another area's slot")	\
	x(bad_offset,		"reads that found another place's slot") \
	x(bad_domain,		"reads that found another domain's slot") \
	x(bad_hash,		"reads that found another block")	\
	x(bad_generation,	"reads that found another generation")	\
	x(bad_length,		"reads that found another length")	\
	x(bad_payload_crc,	"reads that found a damaged payload")	\
	x(refused,		"requests refused: wrong or without area") \
	x(slow,			"requests that took longer than --slow-ms") \
	x(submits,		"calls that gave requests to the kernel") \
	x(transfers,		"transfers given to the kernel")	\
	x(merged,		"requests that shared a transfer")	\
	x(split,		"shared transfers that failed: tried one by one") \
	x(sleeps,		"times swapd had nothing to do")

enum swapd_counter {
#define x(name, text) SWAPD_CNT_##name,
	SWAPD_COUNTERS(x)
#undef x
	NR_SWAPD_COUNTERS
};

/* Counters of each area. */
#define SWAPD_AREA_COUNTERS(x)						\
	x(rd_ios,	"reads finished")				\
	x(rd_bytes,	"bytes read")					\
	x(rd_ns,	"nanoseconds from issue to end, summed")	\
	x(wr_ios,	"writes finished")				\
	x(wr_bytes,	"bytes written")				\
	x(wr_ns,	"nanoseconds from issue to end, summed")	\
	x(errors,	"transfers failed or short")			\
	x(bad,		"reads that found a wrong slot")		\
	x(wr_depth,	"write transfers that the kernel may have at once, now") \
	x(wr_lowered,	"times that was lowered, since reads were slow")

enum swapd_area_counter {
#define x(name, text) SWAPD_AREA_CNT_##name,
	SWAPD_AREA_COUNTERS(x)
#undef x
	NR_SWAPD_AREA_COUNTERS
};

/**
 * struct swapd_ctl - head of the shared memory
 * @magic:        SWAPD_MAGIC, like all of the first line written by kvmm once
 * @entries:      of each ring
 * @req_tail:     kvmm's
 * @req_head:     swapd's
 * @cpl_tail:     swapd's
 * @cpl_head:     kvmm's
 * @swapd_sleeps: swapd's: write the request eventfd after publishing
 * @kvmm_sleeps:  kvmm's: write the completion eventfd after publishing
 * @counter:      by enum swapd_counter; over all starts
 * @area:         by area index and enum swapd_area_counter; kvmm clears a row
 *                before it adds an area there
 */
struct swapd_ctl {
	u64	magic;
	u32	version;
	u32	bytes;
	u32	entries;
	u32	resv[11];
	u32	req_tail __attribute__((aligned(64)));
	u32	req_head __attribute__((aligned(64)));
	u32	cpl_tail __attribute__((aligned(64)));
	u32	cpl_head __attribute__((aligned(64)));
	u32	swapd_sleeps __attribute__((aligned(64)));
	u32	kvmm_sleeps __attribute__((aligned(64)));
	u64	counter[NR_SWAPD_COUNTERS] __attribute__((aligned(64)));
	u64	area[SWAPD_AREAS][NR_SWAPD_AREA_COUNTERS]
		__attribute__((aligned(64)));
};

#define SWAPD_CTL_BYTES	4096u

static_assert(sizeof(struct swapd_req) == 96, "layout of a request");
static_assert(sizeof(struct swapd_cpl) == 16, "layout of a completion");
static_assert(sizeof(struct swapd_carrier) == 24, "layout of a carrier");
static_assert(sizeof(struct swapd_ctl) <= SWAPD_CTL_BYTES, "room of the head");

/* Bytes of the shared memory, a multiple of the page size. */
static inline u32 swapd_shm_bytes(u32 entries)
{
	return ALIGN_UP(SWAPD_CTL_BYTES +
			entries * (u32)(sizeof(struct swapd_req) +
					sizeof(struct swapd_cpl) +
					sizeof(struct swapd_carrier)), 4096u);
}

static inline struct swapd_req *swapd_shm_reqs(struct swapd_ctl *ctl)
{
	return (struct swapd_req *)((char *)ctl + SWAPD_CTL_BYTES);
}

static inline struct swapd_cpl *swapd_shm_cpls(struct swapd_ctl *ctl,
					       u32 entries)
{
	return (struct swapd_cpl *)(swapd_shm_reqs(ctl) + entries);
}

static inline struct swapd_carrier *swapd_shm_carriers(struct swapd_ctl *ctl,
						       u32 entries)
{
	return (struct swapd_carrier *)(swapd_shm_cpls(ctl, entries) + entries);
}

/**
 * swapd_carrier_read() - which transfer was the request in?
 * @id: of the request
 *
 * Context: kvmm, when that swapd is dead.
 * Return: false: it was in none.
 */
static inline bool swapd_carrier_read(const struct swapd_carrier *table, u64 id,
				      struct swapd_carrier *c)
{
	*c = table[SWAPD_ID_TAG(id)];
	return c->id == id && c->nr;
}

/**
 * swapd_carrier_share() - the part of a transfer's result that belongs to one request
 * @len: of the request
 * @res: result of the transfer, from the kernel
 *
 * Return: bytes, or the negative errno.
 */
static inline s32 swapd_carrier_share(const struct swapd_carrier *c, u32 len,
				      s32 res)
{
	if (res < 0)
		return res;
	return (u32)res > c->off ? (s32)min((u32)res - c->off, len) : 0;
}

/* kvmm, once: @ctl is the mapping of a new memfd of swapd_shm_bytes(). */
static inline void swapd_shm_init(struct swapd_ctl *ctl, u32 entries)
{
	ctl->magic = SWAPD_MAGIC;
	ctl->version = SWAPD_VERSION;
	ctl->bytes = swapd_shm_bytes(entries);
	ctl->entries = entries;
}

/* kvmm, before each START, when the last swapd is known to be dead. */
static inline void swapd_shm_reset(struct swapd_ctl *ctl)
{
	WRITE_ONCE(ctl->req_tail, 0);
	WRITE_ONCE(ctl->req_head, 0);
	WRITE_ONCE(ctl->cpl_tail, 0);
	WRITE_ONCE(ctl->cpl_head, 0);
	WRITE_ONCE(ctl->swapd_sleeps, 0);
}

/* ---- control socket ---- */

enum swapd_msg_op {
	SWAPD_HELLO = 1,	/* swapd: I am here; engine, depth, text */
	SWAPD_START,		/* kvmm: the rings are reset, use them */
	SWAPD_AREA_ADD,		/* kvmm: with the file as SCM_RIGHTS */
	SWAPD_AREA_DEL,		/* kvmm: no requests for it any more */
	SWAPD_LOG,		/* kvmm: log messages up to this level; no answer */
};

enum swapd_engine {
	SWAPD_ENGINE_AUTO,	/* io_uring if it works here, else threads */
	SWAPD_ENGINE_URING,
	SWAPD_ENGINE_SYNC,
};

/* Flags of HELLO. */
#define SWAPD_HELLO_REGISTERED	BIT(0)	/* io_uring pinned the pool once for all */

/* Flags of AREA_ADD. */
#define SWAPD_AREA_KEEP		BIT(0)	/* contents stay: @uuid and @epoch must match */
#define SWAPD_AREA_FORCE	BIT(1)	/* take it although it holds something else */

/* Flags of the answer to AREA_ADD. */
#define SWAPD_AREA_DEVICE	BIT(0)	/* a block device */
#define SWAPD_AREA_BUFFERED	BIT(1)	/* without O_DIRECT: through the page cache */
#define SWAPD_AREA_SPARSE	BIT(2)	/* not preallocated: may run out of room */

/**
 * struct swapd_msg - kvmm to swapd
 * @op:       SWAPD_START, SWAPD_AREA_ADD, SWAPD_AREA_DEL, SWAPD_LOG
 * @area:     index, below SWAPD_AREAS; of SWAPD_LOG enum kv_log_level
 * @cookie:   comes back in the answer
 * @bytes:    size of the area, reserved part included; 0: the file or device
 *            as it is
 * @epoch:    written into the superblock; with KEEP compared
 * @uuid:     with KEEP compared; else ignored
 * @priority: written to the log only
 * @flags:    SWAPD_AREA_KEEP, SWAPD_AREA_FORCE
 * @resv:     0
 */
struct swapd_msg {
	u64	magic;
	u32	op;
	u32	area;
	u64	cookie;
	u64	bytes;
	u64	epoch;
	u8	uuid[SWAPD_UUID_LEN];
	s32	priority;
	u32	flags;
	u64	resv[2];
};

/**
 * struct swapd_answer - swapd to kvmm
 * @op:           of the message answered, or SWAPD_HELLO
 * @area:         likewise
 * @cookie:       likewise
 * @status:       0 or a negative errno
 * @flags:        of an added area, or of HELLO
 * @usable_off:   first byte that slots may use
 * @usable_bytes: from there
 * @uuid:         of an added area
 * @engine:       SWAPD_ENGINE_URING or SWAPD_ENGINE_SYNC
 * @depth:        requests given to the kernel at once
 * @text:         the fault and the remedy; or, with status 0, a note for the
 *                operator, or nothing
 */
struct swapd_answer {
	u64	magic;
	u32	op;
	u32	area;
	u64	cookie;
	s32	status;
	u32	flags;
	u64	usable_off;
	u64	usable_bytes;
	u8	uuid[SWAPD_UUID_LEN];
	u32	engine;
	u32	depth;
	char	text[256];
};

static_assert(sizeof(struct swapd_msg) == 80, "layout of a message");
static_assert(sizeof(struct swapd_answer) == 328, "layout of an answer");

#endif /* KVMM_SWAPD_H */
