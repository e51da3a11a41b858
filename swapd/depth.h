/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depth.h - how many transfers of an area the kernel has at once
 */
#ifndef SWAPD_DEPTH_H
#define SWAPD_DEPTH_H

#include <kvmm/types.h>

/**
 * struct sd_depth - of one area
 * @most, @least: bounds of @limit
 * @write_ns:  what a write may take while nobody reads
 * @read_bytes: reads at once, in bytes; 0: as many as come
 * @limit:     writes at once
 * @moving:    reads, writes that the kernel has
 * @reading:   bytes of these reads
 * @wanted:    in this window a write had to wait for @limit
 * @since:     begin of the window
 * @nr, @bytes, @ns: of reads and writes that ended in it; @ns as of a transfer
 *             of no length
 * @last:      when the last one ended
 * @floor:     the lowest of a read
 * @floor_at:  when that was looked for
 * @best:      bytes a second that were reached, slowly forgotten
 * @tried:     what they were when the limit was raised since they were fewer
 */
struct sd_depth {
	u32	most;
	u32	least;
	u64	write_ns;
	u64	read_bytes;
	u32	limit;
	u32	moving[2];
	u64	reading;
	bool	wanted;
	u64	since;
	u32	nr[2];
	u64	bytes[2];
	u64	ns[2];
	u64	last;
	u64	floor;
	u64	floor_at;
	u64	best;
	u64	tried;
};

/* With @least not below @most it stays as it is. */
void depth_init(struct sd_depth *d, u32 least, u32 most, u64 write_ns,
		u64 read_bytes);

/* Another life of the area @d is of, after depth_init(): what moves, moves. */
void depth_inherit(struct sd_depth *d, const struct sd_depth *before);

/* May a read go to the kernel now? */
bool depth_allows_read(const struct sd_depth *d);

/* May a write go to the kernel now?  If not, that is noted. */
bool depth_allows_write(struct sd_depth *d);

void depth_issued(struct sd_depth *d, bool write, u64 bytes, u64 now);

/**
 * depth_landed() - a transfer has ended
 * @ns: since it was issued
 *
 * Return: whether the limit is another one now.
 */
bool depth_landed(struct sd_depth *d, bool write, u64 bytes, u64 ns, u64 now);

#endif /* SWAPD_DEPTH_H */
